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
MAX_CALLS = 128  # of a rank: ops that ranks stand in are not far from each other


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
    is_paired = (rows["kind"] == RecordKind.P2P) & (rows["peer_or_root"] >= 0) & ~is_fold(rows)
    is_taken = ((rows["kind"] == RecordKind.COLLECTIVE) | is_paired) & ~is_replay(rows)
    rows, is_open = rows[is_taken], is_open[is_taken]
    order = np.lexsort((rows["op_seq"], rows["start_ns"]))[-MAX_CALLS:]
    rows, is_open = rows[order], is_open[order]
    columns = (rows[name].tolist() for name in ("comm_index", "match_seq", "op", "peer_or_root"))
    is_p2p = rows["kind"] == RecordKind.P2P
    places = {id_: members.get(id_, ()) for id_ in view.comm_ids.tolist()}
    here = {
        i: own.index(rank) for i, own in places.items() if (rank := view.state.global_rank) in own
    }
    for index, number, op, peer, still, is_message in zip(
        *columns, is_open.tolist(), is_p2p.tolist(), strict=True
    ):
        comm_id = comm_id_of(view, index)
        if not is_message:
            yield OrderedCall(comm_id, number, still)
        elif comm_id in here:
            own = here[comm_id]
            ends = (own, peer) if op == Op.SEND else (peer, own)
            yield OrderedCall(comm_id, number, still, *ends)
