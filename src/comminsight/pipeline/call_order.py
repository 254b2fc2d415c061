"""The last ops of every recorded rank in the order in which its program called them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from comminsight.analysis.call_order import OrderedCall
from comminsight.model.ops import Op, RecordKind
from comminsight.model.records import is_ended_op, is_fold, is_replay
from comminsight.model.topology import Communicator
from comminsight.pipeline.hang_event import RankView, comm_id_of

Members = Mapping[int, tuple[int, ...]]  # global ranks by comm_id
MAX_CALLS = 256  # of a rank: ops that ranks stand in are not far from each other


def ordered_calls(
    views: Iterable[RankView], communicators: Iterable[Communicator]
) -> dict[int, list[OrderedCall]]:
    """By global rank; of a rank only what came after its last loss. Messages without one known
    partner, and replays of graphs, are left out."""
    members = {one.comm_id: one.members for one in communicators}
    return {view.state.global_rank: list(_calls(view, members)) for view in views}


def _calls(view: RankView, members: Members) -> Iterator[OrderedCall]:
    if view.complete_from_seq <= 0:
        return
    tail = view.records[-2 * MAX_CALLS :]
    ended = tail[is_ended_op(tail) & (tail["seq"] >= view.complete_from_seq)]
    rows = np.concatenate([ended, view.in_flight])
    is_open = np.arange(len(rows)) >= len(ended)
    is_message = (rows["kind"] == RecordKind.P2P) & (rows["peer_or_root"] >= 0) & ~is_fold(rows)
    is_taken = ((rows["kind"] == RecordKind.COLLECTIVE) | is_message) & ~is_replay(rows)
    rows, is_open = rows[is_taken], is_open[is_taken]
    order = np.lexsort((rows["op_seq"], rows["start_ns"]))[-MAX_CALLS:]
    for row, still in zip(rows[order], is_open[order], strict=True):
        comm_id = comm_id_of(view, int(row["comm_index"]))
        ends = _ends(row, view.state.global_rank, members.get(comm_id, ()))
        if ends is not None:
            yield OrderedCall(comm_id, int(row["match_seq"]), bool(still), *ends)


def _ends(row: np.ndarray, rank: int, members: tuple[int, ...]) -> tuple[int, int] | None:
    """(source, target) of a message; -1 of a collective; None where the own place is not known."""
    if row["kind"] != RecordKind.P2P:
        return -1, -1
    if rank not in members:
        return None
    here, there = members.index(rank), int(row["peer_or_root"])
    return (here, there) if row["op"] == Op.SEND else (there, here)
