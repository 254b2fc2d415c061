"""Ranks that share a place in the parallel layout, from coordinates such as ``tp0 pp1 dp0``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from comminsight.model.measures import StragglerMeasures

ALIKE_RATIO = 0.5  # the least delayed rank of a place against the most delayed


def whole_place(measures: StragglerMeasures, columns: Iterable[int], window: slice) -> str | None:
    """The place (``pp1``) whose ranks are exactly ``columns`` or all delayed like them.

    None for a single rank, for a place that is the whole job, and where a rank of the place is
    not delayed like the others: then the place is not the reason.
    """
    named = set(columns)
    delay_ns = np.median(measures.own_delay_ns[window], axis=0)
    for place, members in _places(measures.coords):
        if len(members) < 2 or len(members) == len(measures.global_ranks):
            continue
        is_alike = delay_ns[members].min() >= ALIKE_RATIO * delay_ns[members].max() > 0
        if named <= set(members) and is_alike:
            return place
    return None


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
