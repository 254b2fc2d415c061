"""What a straggler verdict shows: cost, since when, how often, who waited, what the index says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from comminsight.diagnosis import codes
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.places import members_of
from comminsight.diagnosis.recurrence import Episode, Recurrence
from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import ChainLevel, ChainLink, Coverage, Evidence

VICTIM_RATIO = 0.25  # of the cost, waited for in a typical step
MAX_RANKS_SHOWN = 4


def evidence_of(
    used: StragglerMeasures,
    main: Episode,
    columns: Sequence[int],
    place: str | None,
    before_and_after_ns: tuple[float, float],
) -> Iterator[Evidence]:
    """Cost of each culprit, onset, recurrence, the place that is alike, the index if it differs."""
    window = slice(main.first, main.last)
    step_ns = round(before_and_after_ns[1])
    for column in columns[:MAX_RANKS_SHOWN]:
        rank = int(used.global_ranks[column])
        cost_ns = round(float(np.median(used.step_cost_ns[window, column])))
        cost_ns = round(main.cost_ns) if column == main.column else cost_ns
        said = message(codes.COST, rank=rank, cost_ns=cost_ns, n_steps=main.n_hit, step_ns=step_ns)
        yield Evidence(kind="measure", message=said, global_rank=rank)
    if main.recurrence is Recurrence.SINCE and main.first > 0:
        before_ns, after_ns = map(round, before_and_after_ns)
        step = int(used.steps[main.first])
        said = message(codes.ONSET, step=step, before_ns=before_ns, after_ns=after_ns)
        yield Evidence(kind="measure", message=said, step=step)
    yield recurrence_evidence(used, main)
    if place is not None:
        yield _alike(used, place, window)
    yield from _index_elsewhere(used, main)


def recurrence_evidence(used: StragglerMeasures, main: Episode) -> Evidence:
    """How often the delay came back."""
    n_hit, n_steps = main.n_hit, main.n_steps
    match main.recurrence:
        case Recurrence.ALWAYS:
            said = message(codes.RECURS_ALWAYS, n_hit=n_hit, n_steps=n_steps)
        case Recurrence.SINCE:
            step = int(used.steps[main.first])
            said = message(codes.RECURS_SINCE, step=step, n_hit=n_hit, n_steps=n_steps)
        case Recurrence.INTERMITTENT:
            said = message(codes.RECURS_INTERMITTENTLY, n_hit=n_hit, n_steps=n_steps)
    return Evidence(kind="measure", message=said)


def explained_ratio(used: StragglerMeasures, main: Episode) -> float:
    """Share of all waiting in the window that this rank's own delay accounts for: of each other
    rank's wait in a step at most the delay that began here."""
    window = slice(main.first, main.last)
    waited_ns = np.delete(used.waited_ns[window], main.column, axis=1)
    total_ns = float(waited_ns.sum() + used.waited_ns[window, main.column].sum())
    delay_ns = used.own_delay_ns[window, main.column][:, None]
    return float(np.minimum(waited_ns, delay_ns).sum()) / total_ns if total_ns else 0.0


def victims_of(used: StragglerMeasures, main: Episode, columns: Sequence[int]) -> tuple[int, ...]:
    """Other ranks that typically wait for a good part of the cost, ascending."""
    waited_ns = np.median(used.waited_ns[main.first : main.last], axis=0)
    is_victim = waited_ns >= VICTIM_RATIO * main.cost_ns
    is_victim[list(columns)] = False
    return tuple(sorted(int(rank) for rank in used.global_ranks[is_victim]))


def chain_of(
    used: StragglerMeasures, coverage: Coverage, main: Episode, columns: Sequence[int]
) -> tuple[ChainLink, ...]:
    """Job to port; own work belongs to no communicator, op or port."""
    first, last = int(used.steps[main.first]), int(used.steps[main.last - 1])
    ranks = sorted(int(used.global_ranks[column]) for column in columns)
    hosts = sorted({used.hosts[column] for column in columns} - {""})
    coords = sorted({used.coords[column] for column in columns} - {""})
    cost = f"step_cost_ns={round(main.cost_ns)}"
    return (
        ChainLink(ChainLevel.JOB, f"{coverage.ranks_expected} ranks"),
        ChainLink(ChainLevel.ROLE, ", ".join(coords[:MAX_RANKS_SHOWN]) or "unknown"),
        ChainLink(ChainLevel.STEP, f"{first}-{last}"),
        ChainLink(ChainLevel.COMMUNICATOR, "unknown"),
        ChainLink(ChainLevel.OP, "unknown"),
        ChainLink(ChainLevel.RANK, ", ".join(map(str, ranks)), cost),
        ChainLink(ChainLevel.NODE, ", ".join(hosts) or "unknown"),
        ChainLink(ChainLevel.PORT, "unknown"),
    )


def _alike(used: StragglerMeasures, place: str, window: slice) -> Evidence:
    columns = members_of(used, place)
    ranks = sorted(int(used.global_ranks[column]) for column in columns)
    cost_ns = round(float(np.median(used.own_delay_ns[window][:, columns])))
    return Evidence(
        kind="measure", message=message(codes.ALIKE, place=place, ranks=ranks, cost_ns=cost_ns)
    )


def _index_elsewhere(used: StragglerMeasures, main: Episode) -> Iterator[Evidence]:
    index = used.index_pct[main.first : main.last].mean(axis=0)
    top = int(index.argmax())
    if top != main.column:
        said = message(
            codes.INDEX_ELSEWHERE,
            rank=int(used.global_ranks[top]),
            index_pct=float(index[top]),
            origin_rank=int(used.global_ranks[main.column]),
            origin_index_pct=float(index[main.column]),
        )
        yield Evidence(kind="measure", message=said)
