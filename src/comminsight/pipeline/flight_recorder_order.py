"""Ops that a rank has skipped, told by the order of its calls in the dumps of all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from comminsight.analysis.call_order import OrderedCall
from comminsight.analysis.call_order import skipped_ops as skipped_of
from comminsight.model.hang import Progress, SkippedOp
from comminsight.pipeline.flight_recorder_calls import RankCalls
from comminsight.pipeline.flight_recorder_groups import JobGroups


def skipped_ops(
    calls: Mapping[int, RankCalls], groups: JobGroups, progress: Sequence[Progress]
) -> Iterator[SkippedOp]:
    """One per rank and collective that somebody waits in and that the rank went past."""
    ordered = {rank: _ordered(own, groups.comm_ids[rank]) for rank, own in calls.items()}
    return skipped_of(ordered, groups.communicators, progress)


def _ordered(own: RankCalls, comm_ids: Mapping[int, int]) -> list[OrderedCall]:
    places = {pg_id: comm_ids.get(pg_id, -1) for pg_id in own.reached}
    return [OrderedCall(places[one.pg_id], one.seq, not one.is_over) for one in own.collectives]
