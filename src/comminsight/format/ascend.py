"""What the files of Ascend's profiler have in common: stamps, names of ops, names of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from comminsight.format.kineto_events import MAX_RANK, members_of, whole_number
from comminsight.format.torch_names import op_of_call
from comminsight.model.device_trace import CollectiveCall, TraceGroup
from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op

NEXT_STEP = (
    "give the folder *_ascend_pt of one rank, with its ASCEND_PROFILER_OUTPUT, as it was written"
)
COMMUNICATION_CORES = frozenset({"HCCL", "COMMUNICATION"})
MAX_ROWS = 1 << 22
_LARGEST_US = 1 << 52
_PRIMES, _MASK = (29, 131), 0xFFFFFFFF
_TYPES = {
    "INT8": DType.INT8, "INT16": DType.INT16, "INT32": DType.INT32, "INT64": DType.INT64,
    "UINT8": DType.UINT8, "UINT32": DType.UINT32, "UINT64": DType.UINT64, "FP16": DType.FLOAT16,
    "FP32": DType.FLOAT32, "FP64": DType.FLOAT64, "BFP16": DType.BFLOAT16, "BF16": DType.BFLOAT16,
}  # fmt: skip


class AscendRank(msgspec.Struct, frozen=True, kw_only=True):
    """Whose profile it is, by the files beside it; -1 and 0 unknown. ``groups`` are by the hash of
    their name, as communication.json writes it."""

    global_rank: int = -1
    world_size: int = 0
    groups: dict[str, TraceGroup] = {}


def nanoseconds(text: Any) -> int | None:
    """Microseconds, as text or number, in whole nanoseconds; None for what is no time."""
    if isinstance(text, float | int) and not isinstance(text, bool):
        if not abs(text) < _LARGEST_US:  # false for what is not a number, too
            return None
        text = f"{text:.3f}"
    if not isinstance(text, str) or len(text) > 64:
        return None
    whole, _, part = text.strip().partition(".")
    part = part[:3].ljust(3, "0")
    if not (whole.isascii() and whole.isdigit() and part.isascii() and part.isdigit()):
        return None
    value = int(whole) * 1000 + int(part)
    return value if value < 1 << 62 else None


def op_of_hccl(name: str) -> Op:
    """The op in a name such as ``hcom_allReduce__586_0_1``; UNKNOWN for batches of calls."""
    word = name.removeprefix("hcom_").partition("_")[0].lower()
    return Op.RECV if word == "receive" else op_of_call(word)


def call_of(name: str, group: str, rank: AscendRank, *, size_bytes: int = 0) -> CollectiveCall:
    """The call behind a communication op; ``group`` is the hash of its group's name, or "" ."""
    known = rank.groups.get(group, TraceGroup(name=group))
    return CollectiveCall(
        op=op_of_hccl(name), size_bytes=size_bytes, group=known.name, desc=known.desc,
        members=known.members,
    )  # fmt: skip


def payload_bytes(count: Any, dtype: str) -> int:
    """Elements times their size; 0 where either is unknown."""
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 50
    return count * DTYPE_SIZE_BYTES.get(_TYPES.get(dtype, DType.UNKNOWN), 0) if is_count else 0


def hash_of_group(name: str) -> str:
    """Two hashes of the name, of 32 bits each, side by side: the number behind ``@`` in the names
    of communication.json."""
    found = [0, 0]
    for sign in name:
        found = [
            (one * prime + ord(sign)) & _MASK for one, prime in zip(found, _PRIMES, strict=True)
        ]
    return str(found[0] << 32 | found[1])


def rank_of(info: Mapping[str, Any], metadata: Mapping[str, Any]) -> AscendRank:
    """Whose profile it is, by profiler_info_N.json and profiler_metadata.json."""
    said = metadata.get("distributed_args")
    args = said if isinstance(said, dict) else {}
    rank = whole_number(info.get("rank_id"), MAX_RANK)
    listed = metadata.get("parallel_group_info")
    groups: dict[str, TraceGroup] = {}
    for name, one in (listed if isinstance(listed, dict) else {}).items():
        if isinstance(one, dict):
            groups[hash_of_group(name)] = _group(name, one)
    return AscendRank(
        global_rank=rank if rank >= 0 else whole_number(args.get("rank"), MAX_RANK),
        world_size=max(0, whole_number(args.get("world_size"), MAX_RANK)), groups=groups,
    )  # fmt: skip


def _group(name: str, said: Mapping[str, Any]) -> TraceGroup:
    members = members_of(said.get("global_ranks"))
    return TraceGroup(
        name=name[:256], desc=str(said.get("group_name", ""))[:256], members=members,
        size=len(said["global_ranks"]) if members else 0,
    )  # fmt: skip
