"""Ranks that share a place in the parallel layout, from coordinates such as ``tp0 pp1 dp0``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import Backend
from comminsight.model.topology import Communicator

ALIKE_RATIO = 0.5  # the least delayed rank of a place against the most delayed
OUTSIDE_RATIO = 0.5  # the typical rank elsewhere against the least delayed of the place
UNIFORM_HIT_RATIO = 0.9  # of the steps
MAX_CHANCE = 0.1  # that ranks which are slow for any reason are a place as it were by design
MAX_CHANCE_SHARED = 0.01  # where ranks may share cores, so that several are slow for one reason


@dataclass(frozen=True, slots=True)
class UniformPlace:
    """A place whose ranks are all delayed, all alike and nearly always; the most costly first.
    ``chance``: of as many ranks drawn at random being all of some place of this size."""

    place: str
    columns: tuple[int, ...]
    n_hit: int
    cost_ns: float
    chance: float = 0.0


def uniform_place(measures: StragglerMeasures, needed_ns: float) -> UniformPlace | None:
    """The place (``pp1``, ``ep3``) that is delayed as a whole, beyond ``needed_ns`` in a step.

    Replicas of one slow rank are not delayed with it, so a place that is delayed as a whole has
    more work by design. None for a place of one rank and for the whole job.
    """
    own_ns = measures.own_delay_ns
    typical_ns = np.median(own_ns, axis=0)
    for place, columns in _places(measures.coords):
        if not 2 <= len(columns) < len(measures.global_ranks):
            continue
        low = own_ns[:, columns].min(axis=1)
        n_hit = int((low >= needed_ns).sum())
        outside_ns = float(np.median(np.delete(typical_ns, columns)))
        is_alike = typical_ns[columns].min() >= ALIKE_RATIO * typical_ns[columns].max()
        is_theirs = outside_ns <= OUTSIDE_RATIO * float(np.median(low))
        # each is charged half of a delay that all share: without any one the others would remain
        costs_ns = 2 * np.median(measures.step_cost_ns[:, columns], axis=0)
        is_lasting = n_hit >= UNIFORM_HIT_RATIO * len(low) and costs_ns.max() >= needed_ns
        if is_lasting and is_alike and is_theirs:
            ordered = tuple(columns[i] for i in np.argsort(-costs_ns, kind="stable"))
            chance = _chance(measures.coords, len(columns))
            return UniformPlace(place, ordered, n_hit, float(costs_ns.max()), chance)
    return None


def may_share_cores(hosts: Sequence[str], communicators: Sequence[Communicator]) -> bool:
    """True for ranks of one host that do not compute on GPUs, as far as is known."""
    return len(set(hosts)) == 1 and all(one.backend is not Backend.NCCL for one in communicators)


def is_by_design(found: UniformPlace, *, may_share_cores: bool) -> bool:
    """Whether that these ranks are one place tells anything. Of four ranks any two nearly always
    are one, so that two that are slow together, on one core or by chance, look like a stage."""
    return found.chance <= (MAX_CHANCE_SHARED if may_share_cores else MAX_CHANCE)


def _chance(coords: Sequence[str], size: int) -> float:
    places = {tuple(columns) for _, columns in _places(coords) if len(columns) == size}
    return len(places) / math.comb(len(coords), size)


def members_of(measures: StragglerMeasures, place: str) -> list[int]:
    """Columns of the ranks at ``place``."""
    return dict(_places(measures.coords))[place]


def alone_in_stage(measures: StragglerMeasures) -> list[int]:
    """Ranks whose pipeline stage has no other rank: nobody else does the same work."""
    stages = [(place, columns) for place, columns in _places(measures.coords) if place[:2] == "pp"]
    if len(stages) < 2:
        return []
    lonely = [columns[0] for _, columns in stages if len(columns) == 1]
    return [int(measures.global_ranks[column]) for column in lonely]


def _places(coords: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """(place, columns), stages first."""
    found: dict[str, list[int]] = defaultdict(list)
    for column, text in enumerate(coords):
        for place in text.split():
            found[place].append(column)
    yield from sorted(found.items(), key=lambda item: (item[0][:2] != "pp", item[0]))
