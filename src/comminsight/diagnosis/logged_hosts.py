"""The hosts of ranks, where the view of a hang does not tell them and the logs do."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.analysis.log_ranks import ranks_of
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobLog


def with_logged_hosts(event: HangEvent, logs: Sequence[JobLog]) -> HangEvent:
    """The event with the host of each rank that had none and whose processes log from one host."""
    if not logs or all(state.host for state in event.ranks):
        return event
    ranks = ranks_of(logs, event.world_size)
    states = tuple(
        state if state.host else replace(state, host=ranks.host_of(state.global_rank))
        for state in event.ranks
    )
    return replace(event, ranks=states)
