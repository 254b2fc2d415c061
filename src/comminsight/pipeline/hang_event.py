"""From what processes left in flight to one HangEvent: who entered what, and how far everyone came.

Sources differ (a live box, the box of a dead process, segments alone) but give the same view: the
ops without an end, and for every stream of matches the last one entered and the last one done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from comminsight.model.hang import HangEvent, InFlightOp, Progress, RankState, Stack
from comminsight.model.ops import OpState, RecordKind

FINISHED = (OpState.DONE, OpState.FAILED, OpState.ABORTED, OpState.UNOBSERVABLE)
NO_PEER = -1


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank at the time of observation.

    ``records`` are ``OP_DTYPE`` rows in any order (the tail suffices), ``in_flight`` the records of
    ops without an end, ``owner_tids`` beside them; ``comm_ids[comm_index]`` is the run's comm_id.
    """

    state: RankState
    records: np.ndarray
    in_flight: np.ndarray
    owner_tids: np.ndarray
    is_overdue: np.ndarray
    comm_ids: np.ndarray


def comm_id_of(view: RankView, comm_index: int) -> int:
    """The run's communicator of a row, -1 when the table does not know it."""
    return int(view.comm_ids[comm_index]) if comm_index < len(view.comm_ids) else -1


def in_flight_ops(view: RankView, now_ns: int) -> list[InFlightOp]:
    """The ops this rank is inside of, oldest first."""
    rows = zip(view.in_flight, view.owner_tids, view.is_overdue, strict=True)
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
        )
        for row, tid, overdue in rows
    ]
    return sorted(ops, key=lambda op: (op.start_ns, op.op_seq))


def streams(rows: np.ndarray) -> np.ndarray:
    """(n, 3) keys of match streams: comm_index, peer, direction; -1 and 0 for collectives."""
    is_p2p = rows["kind"] == RecordKind.P2P
    peer = np.where(is_p2p, rows["peer_or_root"], NO_PEER)
    direction = np.where(is_p2p, rows["op"], 0)
    return np.column_stack((rows["comm_index"].astype(np.int64), peer, direction))


def last_per_stream(rows: np.ndarray) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Highest match_seq of every stream with its end_ns."""
    if not len(rows):
        return {}
    keys = streams(rows)
    order = np.lexsort((rows["match_seq"], keys[:, 2], keys[:, 1], keys[:, 0]))
    keys, match_seq, end_ns = keys[order], rows["match_seq"][order], rows["end_ns"][order]
    is_last = np.append(np.any(keys[1:] != keys[:-1], axis=1), [True])
    return {
        (int(comm), int(peer), int(direction)): (int(seq), int(end))
        for (comm, peer, direction), seq, end in zip(
            keys[is_last], match_seq[is_last], end_ns[is_last], strict=True
        )
    }


def progress(view: RankView) -> list[Progress]:
    """How far the rank came in every stream it took part in."""
    ops = view.records[np.isin(view.records["kind"], (RecordKind.COLLECTIVE, RecordKind.P2P))]
    done = last_per_stream(ops[np.isin(ops["state"], FINISHED)])
    entered = last_per_stream(np.concatenate((ops, view.in_flight)))
    return [
        Progress(
            global_rank=view.state.global_rank,
            comm_id=comm_id_of(view, comm_index),
            last_entered=seq,
            last_done=done.get((comm_index, peer, direction), (0, 0))[0],
            peer=peer,
            direction=direction,
            last_end_ns=done.get((comm_index, peer, direction), (0, 0))[1],
        )
        for (comm_index, peer, direction), (seq, _) in sorted(entered.items())
    ]


def hang_event(
    views: Iterable[RankView],
    *,
    now_mono_ns: int,
    now_real_ns: int,
    overdue_limit_ns: int,
    world_size: int,
    stacks: Mapping[int, Stack] | None = None,
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
    )
