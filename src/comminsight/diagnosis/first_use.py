"""All members inside the first op of a communicator: its kernel may still have to be loaded.

CUDA loads code at its first use, and loading may wait for kernels that run; one of those may be
waiting for the rank that loads. It stays a hypothesis: only native stacks show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.hang import StackSource
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Evidence, Verdict

MAX_SHOWN = 4
_LOADING = re.compile(
    r"\b(?:cu|cuda|hip|__cuda)(?:Module|Library|Kernel|Func)?"
    r"(?:Load|GetFunction|GetKernel|GetProcAddress|RegisterFatBinary|FuncGetAttributes)\w{0,24}"
    r"|\b_?dl_?open\w{0,16}|\bdlopen\b"
)


def with_first_use(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With the hypothesis where the op is the first of its communicator, and the frames for it."""
    op = verdict.first_bad_op
    if verdict.cause is not Cause.ALL_PRESENT_STUCK or verdict.culprits or op is None:
        return verdict
    if op.match_seq != 1 or op.is_replay:
        return verdict
    said = message(codes.FIRST_USE, op=op.op, comm=op.comm_label)
    frames = list(_loaders(job))
    missing = verdict.missing
    if not frames:
        missing = (*missing, message(codes.MISSING_NATIVE_STACK, ranks=list(verdict.victims)))
    return replace(
        verdict,
        evidence=(*verdict.evidence, Evidence(kind="record", message=said), *frames[:MAX_SHOWN]),
        missing=missing,
        next_actions=(*verdict.next_actions, message(codes.LOAD_EAGERLY)),
    )


def _loaders(job: JobEvidence) -> Iterator[Evidence]:
    """The first frame of each stack that loads code."""
    for rank, lines in _stacks(job):
        frame = next((line.strip() for line in lines if _LOADING.search(line)), None)
        if frame is not None:
            said = message(codes.LOADER, rank=rank, frame=frame)
            yield Evidence(kind="stack", message=said, global_rank=rank, text=frame)


def _stacks(job: JobEvidence) -> Iterator[tuple[int, list[str]]]:
    for stack in job.hang.stacks if job.hang is not None else ():
        if stack.source is not StackSource.NONE:
            yield stack.global_rank, stack.text.splitlines()
    for call in job.frames:
        yield call.global_rank, list(call.frames)
