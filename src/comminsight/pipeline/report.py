"""The run report as data: rows per step and per rank, notes, verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.measures import excluded_steps, mean_over_complete
from comminsight.model.measures import StragglerMeasures
from comminsight.model.report import REPORT_SCHEMA_VERSION, RankRow, RunFacts, RunReport, StepRow
from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.model.tally import Tally
from comminsight.model.verdict import Coverage, Message, Verdict
from comminsight.pipeline.parallel import RunRoles


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
        phase_ns=mean_phases(members),
        n_lost=sum(m.n_lost for m in members),
        n_late=sum(m.n_late for m in members),
        n_microbatches=number_of_microbatches(members),
    )


def number_of_microbatches(members: Sequence[StepSummary]) -> int:
    """What the phases of the step tell on all ranks that tell it; 0 where they differ or none
    does."""
    told = {phase.n_microbatches for own in members for phase in own.phases} - {0}
    return told.pop() if len(told) == 1 else 0


def mean_phases(members: Sequence[StepSummary]) -> dict[str, int]:
    """Time in each kind of phase, a mean over the members that have phases, in the order in which
    the kinds first begin. Time of a step in no phase is unknown."""
    with_phases = [own for own in members if own.phases]
    begins: dict[str, int] = {}
    sums: dict[str, int] = defaultdict(int)
    for own in with_phases:
        for kind, duration_ns in phase_times_ns(own.phases).items():
            sums[kind] += duration_ns
        if (unsaid_ns := own.span_ns - covered_ns(own.phases)) > 0:
            sums[PhaseKind.UNKNOWN.value] += unsaid_ns
            begins.setdefault(PhaseKind.UNKNOWN.value, own.span_ns)
        for phase in own.phases:
            offset_ns = phase.start_ns - own.start_ns
            begins[phase.kind.value] = min(begins.get(phase.kind.value, offset_ns), offset_ns)
    return {
        kind: round(sums[kind] / len(with_phases)) for kind in sorted(sums, key=begins.__getitem__)
    }


def phase_times_ns(phases: Sequence[Phase]) -> dict[str, int]:
    """Time covered by each kind; intervals of one kind that overlap count once."""
    of_kind: dict[str, list[Phase]] = defaultdict(list)
    for phase in phases:
        of_kind[phase.kind.value].append(phase)
    return {kind: covered_ns(own) for kind, own in of_kind.items()}


def covered_ns(phases: Sequence[Phase]) -> int:
    """Time in any of these phases."""
    total_ns, until_ns = 0, min((own.start_ns for own in phases), default=0)
    for phase in sorted(phases, key=lambda own: own.start_ns):
        total_ns += max(0, phase.end_ns - max(phase.start_ns, until_ns))
        until_ns = max(until_ns, phase.end_ns)
    return total_ns


def mean_int(values: Sequence[int]) -> int:
    """Rounded mean, 0 of nothing."""
    return round(sum(values) / len(values)) if values else 0


def rank_rows(measures: StragglerMeasures, devices: Mapping[int, str]) -> tuple[RankRow, ...]:
    """One row per rank: means over the rank's complete steps, zeros without any, and the steps
    that were left out of them; ``devices`` by global rank."""
    origin_ns = measures.own_delay_ns + measures.transfer_delay_ns
    columns = (
        measures.index_pct, measures.caused_wait_ns, origin_ns, measures.passed_on_ns,
        measures.waited_ns,
    )  # fmt: skip
    means = [mean_over_complete(values, measures.is_complete) for values in columns]
    excluded = excluded_steps(measures)
    n_steps = measures.is_complete.sum(axis=0)
    return tuple(
        RankRow(
            global_rank=int(rank),
            host=measures.hosts[i],
            n_steps=int(n_steps[i]),
            straggler_index_pct=float(means[0][i]),
            caused_wait_ns=round(float(means[1][i])),
            origin_delay_ns=round(float(means[2][i])),
            passed_on_delay_ns=round(float(means[3][i])),
            waited_ns=round(float(means[4][i])),
            coords=measures.coords[i],
            excluded_steps=excluded.get(int(rank), ()),
            device=devices.get(int(rank), ""),
        )
        for i, rank in enumerate(measures.global_ranks)
    )


def run_report(
    facts: RunFacts,
    roles: RunRoles,
    steps: tuple[StepRow, ...],
    ranks: tuple[RankRow, ...],
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
        communicators=roles.communicators,
        steps=steps,
        ranks=ranks,
        verdicts=verdicts,
        notes=notes,
        tally=tally.as_dict(),
        layout=roles.coordinates.layout,
    )
