"""What a device kernel is, by its name: library communication, hand-written communication, other.

Lists go stale, so a name decides only what it clearly says: nothing here counts as compute.
Sources of the names: NCCL and RCCL device code, HCCL, DeepEP, NVSHMEM, vLLM's custom all-reduce,
and traces of the field.
"""

from __future__ import annotations

import re

from comminsight.model.activity import ActivityKind

_LIBRARY = re.compile(
    r"(^|[^a-z])(nccl|rccl|hccl|oneccl|gloo|ucc)(?=:|dev|kernel|generic)", re.ASCII
)
_OWN = re.compile(
    r"cross_device_reduce|(^|::|_)deep_ep|deepep|nvshmem|internode::(dispatch|combine)"
    r"|intranode::(dispatch|combine)|multimem_all_|(one|two)_shot_all_reduce|trtllm_all_?reduce"
    r"|all_?reduce_fusion_kernel",
    re.ASCII,
)
_COPY = re.compile(r"^memcpy|^memset|(^|_)copy_kernel", re.ASCII)
_WAIT = re.compile(
    r"(stream|event|device|context)[ _]?(sync|synchronize|wait)|^sync$|cuda\w*synchronize", re.ASCII
)


def kind_of_kernel(name: str) -> tuple[ActivityKind, bool]:
    """The class of a kernel, and whether a communication library wrote it; OTHER for what the name
    does not tell."""
    lowered = name.lower()
    if _LIBRARY.search(lowered):
        return ActivityKind.COMMUNICATION, True
    if _OWN.search(lowered):
        return ActivityKind.COMMUNICATION, False
    if _WAIT.search(lowered):
        return ActivityKind.WAIT, True
    if _COPY.search(lowered):
        return ActivityKind.COPY, True
    return ActivityKind.OTHER, True
