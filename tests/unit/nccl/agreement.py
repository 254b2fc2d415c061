"""The laws that every scenario must keep: what the log says was played stands in the records.

Each call once (or counted as lost), in the order of the calls, with its own numbers, on all ranks
under the same match number, and with times that hold the truth within the stated error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from comminsight.model.hang import Liveness
from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op, OpFlag, OpState, TimingSource
from comminsight.model.records import is_replay
from tests.unit.nccl.scenes import OPS, Member, Played

DTYPES = {
    "int8": DType.INT8, "uint8": DType.UINT8, "int32": DType.INT32, "uint32": DType.UINT32,
    "int64": DType.INT64, "uint64": DType.UINT64, "float16": DType.FLOAT16,
    "float32": DType.FLOAT32, "float64": DType.FLOAT64, "bfloat16": DType.BFLOAT16,
    "float8e4m3": DType.FLOAT8_E4M3, "float8e5m2": DType.FLOAT8_E5M2,
}  # fmt: skip
WHOLE = {Op.ALL_GATHER, Op.REDUCE_SCATTER}  # the buffer that counts is that of all ranks
IN_BYTES = {Op.ALL_GATHER, Op.BROADCAST}
ROOTED = {Op.BROADCAST, Op.REDUCE}
P2P = {Op.SEND, Op.RECV}
QUANTUM_NS = 1_000  # coarsest GPU clock of the scenarios

IsShown = Callable[[dict], bool]


def check_program(played: Played) -> None:
    """No callback failed, no start left its handle unwritten, and every rank came to its end."""
    assert played.ends
    for end in played.ends:
        assert (end["unwritten"], end["nonzero"]) == (0, 0)


def check_end(played: Played) -> None:
    """Every process that ended in order has said so, and sealed its segments."""
    assert {session.liveness for session in played.sessions} == {Liveness.CLOSED}
    assert list(played.folder.glob("spool/*/*.open")) == []
    assert list(played.folder.glob("spool/*/*.ciseg"))


def check_conservation(played: Played, is_shown: IsShown) -> None:
    """Calls = records (folds counted whole) + losses, at every place, to the last one."""
    for place, member in played.members.items():
        n_shown = sum(map(is_shown, member.calls))
        assert n_shown == member.n_recorded + member.n_lost, place


def check_calls(played: Played, is_shown: IsShown) -> None:
    """Records stand in the order of the calls and repeat what was called (where calls are seen);
    all together are numbered without a gap."""
    for place, member in played.members.items():
        n_calls = np.maximum(1, member.ops["n_folded"].astype(np.int64))
        assert member.ops["op_seq"].tolist() == (1 + np.cumsum(n_calls) - n_calls).tolist(), place
        calls = [call for call in member.calls if is_shown(call)]
        for record, own in paired(member.ops, calls):
            if record["flags"] & OpFlag.COALESCED:
                check_fold(record, own)
            else:
                expected = called(own[0], len(member.members))
                assert said(record) == expected, (place, int(record["op_seq"]))


def paired(ops: np.ndarray, calls: list[dict]) -> Iterator[tuple[np.void, list[dict]]]:
    """Each record, in ``op_seq`` order, with the calls that it stands for. Replays of graphs and
    other calls are told by two threads: each kind is in order, the two are not."""
    has_flag = bool(is_replay(ops).any())  # a release without calls cannot tell which are replays
    for kind in (False, True):
        own = [call for call in calls if (has_flag and bool(call.get("replay"))) is kind]
        position = 0
        for record in ops[is_replay(ops) == kind]:
            n_calls = max(1, int(record["n_folded"]))
            yield record, own[position : position + n_calls]
            position += n_calls


def said(record: np.void) -> tuple[int, ...]:
    """(op, dtype, count, size, root or peer) of a record."""
    return tuple(int(record[f]) for f in ("op", "dtype", "count", "size_bytes", "peer_or_root"))


def called(call: dict, comm_size: int) -> tuple[int, ...]:
    """The same of a call, in the convention of the records."""
    op = OPS[call["func"]]
    count = call["count"] * (comm_size if op in WHOLE else 1)
    dtype = DTYPES[call["dtype"]]
    if call.get("replay") and op in IN_BYTES:  # told by its task alone
        count, dtype = count * DTYPE_SIZE_BYTES[dtype], DType.INT8
    if dtype is DType.UINT8:  # NCCL has no word for it
        dtype = DType.UNKNOWN
    place = call["peer"] if op in P2P else call["root"] if op in ROOTED else -1
    return int(op), int(dtype), count, count * DTYPE_SIZE_BYTES.get(dtype, 0), place


def check_fold(record: np.void, calls: list[dict]) -> None:
    """A fold speaks for all its calls: their bytes, and whether they go one way or both."""
    ops = {OPS[call["func"]] for call in calls}
    assert record["op"] == (Op.ALL_TO_ALL if len(ops) == 2 else ops.pop())
    assert record["peer_or_root"] == -1
    assert record["size_bytes"] == sum(called(call, 0)[3] for call in calls)


def check_matches(played: Played) -> None:
    """Collectives and P2P ops count from 1 without a gap, and ranks meet on what they counted."""
    met: dict[tuple, set[tuple]] = defaultdict(set)
    for place, member in played.members.items():
        if member.n_lost:
            continue
        for stream, ops in streams(member):
            assert ops["match_seq"].tolist() == sorted(ops["match_seq"].tolist()), (place, stream)
            if stream in {"collective", "replay"}:
                assert ops["match_seq"].tolist() == list(range(1, len(ops) + 1)), place
                met[member.comm_hash, place.life, stream].add(tuple(ops["op"].tolist()))
    for key, orders in met.items():
        longest = max(orders, key=len)
        assert all(order == longest[: len(order)] for order in orders), key


def streams(member: Member) -> Iterator[tuple[object, np.ndarray]]:
    """The records that count together, folds apart."""
    is_fold = (member.ops["flags"] & OpFlag.COALESCED) != 0
    is_p2p = np.isin(member.ops["op"], list(P2P)) & ~is_fold
    yield "collective", member.ops[~is_p2p & ~is_fold & ~is_replay(member.ops)]
    yield "replay", member.ops[~is_p2p & ~is_fold & is_replay(member.ops)]
    yield "fold", member.ops[is_fold]
    ops = member.ops[is_p2p]
    names = [ops["peer_or_root"].tolist(), ops["op"].tolist(), is_replay(ops).tolist()]
    pairs = [*zip(*names, strict=True)]
    for pair in sorted(set(pairs)):
        yield pair, ops[[one == pair for one in pairs]]


def check_channels(played: Played) -> None:
    """A finished op saw as many channels begin and end as its task has (0: none stated)."""
    for place, member in played.members.items():
        done = member.ops[member.ops["state"] == OpState.DONE]
        for record in done:
            started, stopped = int(record["channels_started"]), int(record["channels_stopped"])
            assert started == stopped, (place, int(record["op_seq"]))
            assert record["n_channels"] in {0, started}, (place, int(record["op_seq"]))


def check_times(played: Played, is_shown: IsShown) -> int:
    """Stamps are the truth (GPU clock), the truth within the stated error (host clock), or not
    before it (callbacks). The number of ops with GPU times."""
    n_gpu = 0
    for place, member in played.members.items():
        calls = [call for call in member.calls if is_shown(call)]
        for record, own in paired(member.ops, calls):
            if record["state"] != OpState.DONE or record["flags"] & OpFlag.COALESCED:
                continue
            truth = played.done[place.rank, own[0]["id"]]
            n_gpu += record["timing_source"] == TimingSource.GPU
            check_time(record, truth)
    return n_gpu


def check_time(record: np.void, truth: dict) -> None:
    start, end = int(record["start_ns"]), int(record["end_ns"])
    assert 0 < record["enqueue_ns"] <= end
    assert start <= end
    if record["timing_source"] == TimingSource.GPU:
        slack = int(record["clock_error_ns"]) + QUANTUM_NS
        assert int(record["gpu_start_ns"]) == truth["gpu_start_ns"]
        assert int(record["gpu_end_ns"]) == truth["gpu_end_ns"]
        assert abs(start - truth["start_ns"]) <= slack
        assert abs(end - truth["end_ns"]) <= slack
    else:
        assert record["timing_source"] == TimingSource.HOST_KERNEL_CALLBACK
        assert record["clock_error_ns"] == 0
        assert end >= truth["end_ns"] - QUANTUM_NS
