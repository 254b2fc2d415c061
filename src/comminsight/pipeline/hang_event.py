"""From what processes left in flight to one HangEvent: who entered what, and how far everyone came.

Sources differ (a live box, the box of a dead process, segments alone) but give the same view: the
ops without an end, and for every stream of matches the last one entered and the last one done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from comminsight.model.hang import HangEvent, InFlightOp, Progress, RankState, SkippedOp, Stack
from comminsight.model.ops import OpFlag, RecordKind, SlotFlag, TimingSource
from comminsight.model.records import is_ended_op, is_fold, is_op, is_replay, is_untimed
from comminsight.model.topology import Communicator
from comminsight.pipeline.trace import is_finished

TAIL_RECORDS = 1 << 16  # more than a ring
Numbered = TypeVar("Numbered", InFlightOp, Progress, SkippedOp)
PEER_BITS, DIRECTION_BITS = 22, 8  # with one for replays and a comm_index of 32 in one int64
BY_KERNEL = (TimingSource.GPU, TimingSource.HOST_KERNEL_CALLBACK)
PENDING_WORDS = 4
SLOT_NUMBERS = (
    "slot_flags", "started_mask", "stopped_mask", "launch_ns", "wait_side", "net_posted_bytes",
    "net_done_bytes", "net_progress_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank at the time of observation.

    ``records`` are ``OP_DTYPE`` rows in ``seq`` order, of which none is missing from the number
    ``complete_from_seq`` on (0: from no number on), ``in_flight`` the records of ops without an
    end, ``owner_tids`` beside them; ``comm_ids[comm_index]`` is the run's comm_id. ``slots`` are
    the whole slots (``SLOT_DTYPE``) beside ``in_flight``, None where only their records are known,
    ``comm_sizes[comm_index]`` the sizes of the communicators, needed to read a fold's peers.
    """

    state: RankState
    records: np.ndarray
    in_flight: np.ndarray
    owner_tids: np.ndarray
    is_overdue: np.ndarray
    comm_ids: np.ndarray
    complete_from_seq: int = 1
    slots: np.ndarray | None = None
    comm_sizes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    unseen_calls: Mapping[int, int] = field(default_factory=dict)


def comm_id_of(view: RankView, comm_index: int) -> int:
    """The run's communicator of a row, -1 when the table does not know it."""
    return int(view.comm_ids[comm_index]) if comm_index < len(view.comm_ids) else -1


def in_flight_ops(view: RankView, now_ns: int) -> list[InFlightOp]:
    """The ops this rank is inside of, oldest first."""
    rows = zip(view.in_flight, view.owner_tids, view.is_overdue, details(view), strict=True)
    ops = [
        InFlightOp(
            global_rank=view.state.global_rank,
            comm_id=comm_id_of(view, int(row["comm_index"])),
            kind=int(row["kind"]),
            op=int(row["op"]),
            op_seq=int(row["op_seq"]),
            match_seq=int(row["match_seq"]),
            start_ns=int(row["start_ns"]),
            age_ns=max(0, now_ns - int(row["start_ns"])),
            size_bytes=int(row["size_bytes"]),
            count=int(row["count"]),
            dtype=int(row["dtype"]),
            red_op=int(row["red_op"]),
            peer=int(row["peer_or_root"]),
            owner_tid=int(tid),
            is_overdue=bool(overdue),
            n_folded=int(row["n_folded"]),
            stream_id=int(row["stream_id"]),
            is_replay=bool(row["flags"] & OpFlag.GRAPH),
            n_channels=int(row["n_channels"]),
            **more,
        )
        for row, tid, overdue, more in rows
    ]
    return sorted(ops, key=lambda op: (op.start_ns, op.op_seq))


def details(view: RankView) -> list[dict[str, Any]]:
    """What the slot of each op in flight tells beyond its record; nothing without a slot."""
    if view.slots is None:
        return [{} for _ in view.in_flight]
    passed = is_passed(view.slots, view.records)
    return [
        slot_details(slot) | pending_peers(slot, view.comm_sizes) | {"is_passed": bool(over)}
        for slot, over in zip(view.slots, passed, strict=True)
    ]


def is_passed(slots: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Which ops in flight are over, though their end was not told: the kernels of a communicator
    run one after the other, and that of a later op has left.

    Later is what was told later of its own kind: replays of a graph are told by another thread than
    the calls of the program, early or late. Ops of one group call run together: of those only one
    that never began is passed by another.
    """
    is_nccl: np.ndarray = (slots["slot_flags"] & SlotFlag.NCCL) != 0
    if not is_nccl.any():
        return is_nccl
    ended = records[is_ended_op(records) & np.isin(records["timing_source"], BY_KERNEL)]
    lines, own = launch_lines(ended), launch_lines(slots["record"])
    newest = {line: newest_groups(ended[lines == line]) for line in np.unique(own).tolist()}
    passed = [
        bool(nccl) and is_passed_by(newest[line], slot)
        for nccl, line, slot in zip(is_nccl, own.tolist(), slots, strict=True)
    ]
    return np.array(passed, bool)


def launch_lines(rows: np.ndarray) -> np.ndarray:
    """A number per row, equal where the order of ``op_seq`` is that of the kernels: within one
    communicator, replays of graphs apart."""
    lines: np.ndarray = rows["comm_index"].astype(np.int64) << 1 | is_replay(rows)
    return lines


def newest_groups(ended: np.ndarray) -> list[tuple[int, int]]:
    """(highest op_seq, group call) of the two group calls that came furthest, the furthest first;
    0 is no known group call."""
    groups, numbers = ended["group_id"], ended["op_seq"]
    if not len(ended):
        return []
    first = int(groups[np.argmax(numbers)])
    others = numbers[(groups != first) & (groups > 0)]
    return [(int(numbers.max()), first), (int(others.max(initial=0)), -1)]


def is_passed_by(newest: list[tuple[int, int]], slot: np.ndarray) -> bool:
    """Whether one of the furthest ops says that the op of the slot is over."""
    op_seq, group = int(slot["record"]["op_seq"]), int(slot["record"]["group_id"])
    if not newest or newest[0][0] <= op_seq:
        return False
    if not int(slot["started_mask"]):
        return True
    return group > 0 and any(
        number > op_seq and other not in {0, group} for number, other in newest
    )


def slot_details(slot: np.ndarray) -> dict[str, Any]:
    """The fields of ``InFlightOp`` that a slot of the NCCL door tells; nothing for other doors."""
    if not int(slot["slot_flags"]) & SlotFlag.NCCL:
        return {}
    return {name: int(slot[name]) for name in SLOT_NUMBERS}


def pending_peers(slot: np.ndarray, comm_sizes: np.ndarray) -> dict[str, Any]:
    """The unfinished peers of a fold: bit ``i`` stands for the ``span`` ranks from ``i * span`` on,
    ``span`` = comm_size / 256, rounded up."""
    bits = sum(int(slot[f"pending_peers_{i}"]) << 64 * i for i in range(PENDING_WORDS))
    comm_index = int(slot["record"]["comm_index"])
    size = int(comm_sizes[comm_index]) if comm_index < len(comm_sizes) else 0
    if not bits or size <= 0 or int(slot["record"]["n_folded"]) <= 1:
        return {}
    span = -(-size // (64 * PENDING_WORDS))
    peers = (i * span for i in range(bits.bit_length()) if bits >> i & 1)
    return {"pending_peers": tuple(p for p in peers if p < size), "pending_span": span}


def stream_keys(rows: np.ndarray) -> np.ndarray:
    """The match stream of every row as one number: comm_index, is_replay, peer + 1, direction; the
    last two are 0 for collectives, the peer alone for P2P without one known partner."""
    is_p2p = rows["kind"] == RecordKind.P2P
    known = np.where(is_fold(rows), -1, rows["peer_or_root"].astype(np.int64))
    peer = np.clip(known + 1, 0, (1 << PEER_BITS) - 1)
    within = peer << DIRECTION_BITS | rows["op"]
    keys: np.ndarray = launch_lines(rows) << (PEER_BITS + DIRECTION_BITS)
    keys |= np.where(is_p2p, within, 0)
    return keys


class Stream(NamedTuple):
    """A match stream of one rank; peer -1 and direction 0 for collectives."""

    comm_index: int
    is_replay: bool
    peer: int
    direction: int


def stream_of(key: int) -> Stream:
    """The stream of a key."""
    peer = (key >> DIRECTION_BITS & (1 << PEER_BITS) - 1) - 1
    line = key >> (PEER_BITS + DIRECTION_BITS)
    return Stream(line >> 1, bool(line & 1), peer, key & (1 << DIRECTION_BITS) - 1)


class Last(NamedTuple):
    """The op of highest ``match_seq`` in a stream, and the newest arrival number there."""

    match_seq: int = 0
    end_ns: int = 0
    seq: int = 0


def last_per_stream(rows: np.ndarray) -> dict[int, Last]:
    """By stream key. The tail tells of all streams that still move; what comes before it is only
    searched for the others."""
    tail = rows[-TAIL_RECORDS:]
    found = last_in(tail, stream_keys(tail))
    earlier = rows[: len(rows) - len(tail)]
    keys = stream_keys(earlier)
    is_other = ~np.isin(keys, np.array([*found], np.int64))
    return last_in(earlier[is_other], keys[is_other]) | found


def last_in(rows: np.ndarray, keys: np.ndarray) -> dict[int, Last]:
    """By stream key, over all ``rows``."""
    if not len(rows):
        return {}
    order = np.lexsort((rows["match_seq"], keys))
    keys, match_seq, end_ns = keys[order], rows["match_seq"][order], rows["end_ns"][order]
    begins = np.flatnonzero(np.append([True], keys[1:] != keys[:-1]))
    ends = np.append(begins[1:], len(keys)) - 1
    newest = np.maximum.reduceat(rows["seq"][order], begins)
    lasts = zip(match_seq[ends].tolist(), end_ns[ends].tolist(), newest.tolist(), strict=True)
    return dict(zip(keys[ends].tolist(), map(Last._make, lasts), strict=True))


def progress(view: RankView) -> list[Progress]:
    """How far the rank came in every stream it took part in. What was only seen called has been
    entered, and is not known to be done."""
    ops = view.records[is_op(view.records)]
    done = last_per_stream(ops[is_finished(ops) & ~is_untimed(ops)])
    recorded = last_per_stream(ops)
    inside = last_in(view.in_flight, stream_keys(view.in_flight))
    return [
        stream_progress(view, key, *(found.get(key, Last()) for found in (done, recorded, inside)))
        for key in sorted(recorded.keys() | inside.keys(), key=stream_of)
    ]


def stream_progress(view: RankView, key: int, done: Last, recorded: Last, inside: Last) -> Progress:
    """One stream. Its last op is known when nothing is missing after it, or when the rank is still
    inside of it."""
    stream = stream_of(key)
    is_inside = inside.match_seq > 0 and inside.match_seq >= recorded.match_seq
    return Progress(
        global_rank=view.state.global_rank,
        comm_id=comm_id_of(view, stream.comm_index),
        last_entered=max(recorded.match_seq, inside.match_seq),
        last_done=done.match_seq,
        peer=stream.peer,
        direction=stream.direction,
        is_replay=stream.is_replay,
        last_end_ns=done.end_ns,
        is_current=is_inside or recorded.seq >= view.complete_from_seq > 0,
        n_unseen=view.unseen_calls.get(stream.comm_index, 0),
    )


def hang_event(
    views: Iterable[RankView],
    *,
    now_mono_ns: int,
    now_real_ns: int,
    overdue_limit_ns: int,
    world_size: int,
    stacks: Mapping[int, Stack] | None = None,
    communicators: tuple[Communicator, ...] = (),
) -> HangEvent:
    """The event of all views; ``stacks`` by global rank."""
    ordered = sorted(views, key=lambda view: view.state.global_rank)
    return HangEvent(
        observed_mono_ns=now_mono_ns,
        observed_real_ns=now_real_ns,
        overdue_limit_ns=overdue_limit_ns,
        world_size=world_size,
        ranks=tuple(view.state for view in ordered),
        in_flight=tuple(op for view in ordered for op in in_flight_ops(view, now_mono_ns)),
        progress=tuple(entry for view in ordered for entry in progress(view)),
        stacks=tuple(stacks[rank] for rank in sorted(stacks)) if stacks else (),
        communicators=communicators,
    )


def renumbered(
    event: HangEvent, communicators: Sequence[Communicator], *, is_past: bool = False
) -> HangEvent:
    """The event in the numbers of ``communicators``: one that was stored while the run still made
    groups counts them in another order. -1 for one that is not among them."""
    event = msgspec.structs.replace(event, is_past=is_past)
    if not event.communicators:
        return event
    new_ids = {one.comm_id: comm_id_among(one, communicators) for one in event.communicators}
    return msgspec.structs.replace(
        event,
        in_flight=tuple(with_comm_id(op, new_ids) for op in event.in_flight),
        progress=tuple(with_comm_id(entry, new_ids) for entry in event.progress),
        finished=tuple(with_comm_id(op, new_ids) for op in event.finished),
        skipped=tuple(with_comm_id(op, new_ids) for op in event.skipped),
        communicators=tuple(communicators),
    )


def comm_id_among(one: Communicator, communicators: Sequence[Communicator]) -> int:
    """The number of the communicator with the same key that shares a member with ``one``."""
    named = {rank for rank in one.members if rank >= 0}
    same = (c for c in communicators if (c.comm_hash, c.ordinal) == (one.comm_hash, one.ordinal))
    return next((c.comm_id for c in same if not named.isdisjoint(c.members)), -1)


def with_comm_id(entry: Numbered, new_ids: Mapping[int, int]) -> Numbered:
    """The entry with its communicator's new number."""
    return msgspec.structs.replace(entry, comm_id=new_ids.get(entry.comm_id, -1))
