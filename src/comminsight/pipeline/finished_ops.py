"""The ops that are over on their rank while other members are still in them: what they called is
half of the evidence when members disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from comminsight.model.hang import InFlightOp
from comminsight.model.ops import RecordKind
from comminsight.model.records import is_ended_op, is_replay
from comminsight.pipeline.hang_event import TAIL_RECORDS, RankView, in_flight_ops

Wanted = dict[tuple[int, bool], list[int]]  # (comm_id, is_replay): numbers


def finished_ops(
    views: Sequence[RankView], in_flight: Sequence[InFlightOp], now_ns: int
) -> tuple[InFlightOp, ...]:
    """The ended collectives of all ranks, of instances that some rank is in; by rank."""
    wanted: Wanted = {}
    for op in in_flight:
        if op.kind == RecordKind.COLLECTIVE and op.comm_id >= 0:
            wanted.setdefault((op.comm_id, op.is_replay), []).append(op.match_seq)
    return tuple(op for view in views for op in _finished(view, wanted, now_ns))


def _finished(view: RankView, wanted: Wanted, now_ns: int) -> Iterator[InFlightOp]:
    tail = view.records[-TAIL_RECORDS:]
    rows = tail[is_ended_op(tail) & (tail["kind"] == RecordKind.COLLECTIVE)]
    rows = rows[rows["comm_index"] < len(view.comm_ids)]
    comm_ids, replayed = view.comm_ids[rows["comm_index"]], is_replay(rows)
    is_wanted = np.zeros(len(rows), bool)
    for (comm_id, is_replayed), numbers in wanted.items():
        is_there = (comm_ids == comm_id) & (replayed == is_replayed)
        is_wanted |= is_there & np.isin(rows["match_seq"], numbers)
    found = rows[is_wanted]
    none = np.zeros(len(found), np.int64)
    ended = replace(view, in_flight=found, owner_tids=none, is_overdue=none != 0, slots=None)
    yield from in_flight_ops(ended, now_ns)
