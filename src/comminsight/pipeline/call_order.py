"""The last collectives of every recorded rank in the order in which its program called them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from comminsight.analysis.call_order import OrderedCall
from comminsight.model.ops import RecordKind
from comminsight.model.records import is_ended_op, is_replay
from comminsight.pipeline.hang_event import RankView, comm_id_of

MAX_CALLS = 256  # of a rank: ops that ranks stand in are not far from each other


def ordered_calls(views: Iterable[RankView]) -> dict[int, list[OrderedCall]]:
    """By global rank; of a rank only what came after its last loss."""
    return {view.state.global_rank: _calls(view) for view in views}


def _calls(view: RankView) -> list[OrderedCall]:
    if view.complete_from_seq <= 0:
        return []
    tail = view.records[-2 * MAX_CALLS :]
    ended = tail[is_ended_op(tail) & (tail["seq"] >= view.complete_from_seq)]
    rows = np.concatenate([ended, view.in_flight])
    is_open = np.arange(len(rows)) >= len(ended)
    is_taken = (rows["kind"] == RecordKind.COLLECTIVE) & ~is_replay(rows)
    rows, is_open = rows[is_taken], is_open[is_taken]
    order = np.lexsort((rows["op_seq"], rows["start_ns"]))[-MAX_CALLS:]
    return [
        OrderedCall(comm_id_of(view, int(row["comm_index"])), int(row["match_seq"]), bool(still))
        for row, still in zip(rows[order], is_open[order], strict=True)
    ]
