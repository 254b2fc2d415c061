"""The run report as data: rows per step and per rank, notes, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.measures import StragglerMeasures
from comminsight.model.report import REPORT_SCHEMA_VERSION, RankRow, RunFacts, RunReport, StepRow
from comminsight.model.tally import Tally
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Coverage, Message, Verdict


def step_rows(aligned: Sequence[AlignedStep], world_size: int) -> tuple[StepRow, ...]:
    """One row per step: means over the ranks that have it."""
    return tuple(step_row(step, world_size) for step in aligned)


def step_row(step: AlignedStep, world_size: int) -> StepRow:
    """Means over members; a period is known only where the next step began."""
    members = list(step.members.values())
    periods = [m.period_ns for m in members if m.period_ns]
    return StepRow(
        step=step.step,
        n_ranks=len(members),
        span_ns=mean_int([m.span_ns for m in members]),
        period_ns=mean_int(periods),
        gap_ns=mean_int([m.gap_ns for m in members if m.period_ns]),
        n_ops=sum(m.n_ops for m in members),
        is_complete=len(members) == world_size and all(m.coverage_complete for m in members),
        template=members[0].template,
    )


def mean_int(values: Sequence[int]) -> int:
    """Rounded mean, 0 of nothing."""
    return round(sum(values) / len(values)) if values else 0


def rank_rows(measures: StragglerMeasures) -> tuple[RankRow, ...]:
    """One row per rank: means over the rank's complete steps."""
    return tuple(rank_row(measures, i) for i in range(len(measures.global_ranks)))


def rank_row(measures: StragglerMeasures, rank: int) -> RankRow:
    """Means over the steps in which this rank is complete; zeros without any."""
    own = measures.is_complete[:, rank]

    def mean(values: np.ndarray) -> float:
        return float(values[own, rank].mean()) if own.any() else 0.0

    return RankRow(
        global_rank=int(measures.global_ranks[rank]),
        host=measures.hosts[rank],
        n_steps=int(own.sum()),
        straggler_index_pct=mean(measures.index_pct),
        caused_wait_ns=round(mean(measures.caused_wait_ns)),
        origin_delay_ns=round(mean(measures.own_delay_ns + measures.transfer_delay_ns)),
        passed_on_delay_ns=round(mean(measures.passed_on_ns)),
        waited_ns=round(mean(measures.waited_ns)),
        coords=measures.coords[rank],
    )


def run_report(
    facts: RunFacts,
    communicators: Sequence[Communicator],
    steps: tuple[StepRow, ...],
    measures: StragglerMeasures,
    coverage: Coverage,
    verdicts: tuple[Verdict, ...],
    *,
    notes: tuple[Message, ...] = (),
    tally: Tally,
) -> RunReport:
    """All parts in one value."""
    return RunReport(
        schema_version=REPORT_SCHEMA_VERSION,
        facts=facts,
        coverage=coverage,
        communicators=tuple(communicators),
        steps=steps,
        ranks=rank_rows(measures),
        verdicts=verdicts,
        notes=notes,
        tally=tally.as_dict(),
    )
