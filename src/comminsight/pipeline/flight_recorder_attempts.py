"""Dumps of several attempts or moments in one place: those of the last one are judged.

Files of one moment are named alike but for the rank. Where two such families disagree about a
rank, they are of different moments or attempts, and the one with the newest call is taken whole: a
mixture would show ranks that never met. A family of few ranks yields to one of many.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

AFTER_RANK = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
NUMBER = re.compile(r"(?<!\d)\d{1,7}(?!\d)", re.ASCII)


class Dated(Protocol):
    """What is known of a dump here."""

    @property
    def global_rank(self) -> int:
        """Whose it is."""

    @property
    def source(self) -> str:
        """Its file."""

    @property
    def newest_ns(self) -> int:
        """When its newest call was made."""


One = TypeVar("One", bound=Dated)


@dataclass(slots=True)
class Settled(Generic[One]):
    """One dump per rank, and the files that are set aside: because two of one moment disagree, or
    because they are of another moment."""

    found: dict[int, One] = field(default_factory=dict)
    disagreeing: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)


def settled(
    dumps: Iterable[One], is_same: Callable[[One, One], bool], better: Callable[[One, One], One]
) -> Settled[One]:
    """The dumps of the last moment by rank. ``is_same``: two dumps hold the same calls; ``better``
    picks one of two that do."""
    families: dict[tuple[str, str], list[One]] = defaultdict(list)
    for one in dumps:
        families[naming(Path(one.source), one.global_rank)].append(one)
    largest = max((len(own) for own in families.values()), default=0)
    ordered = sorted(
        families.values(),
        key=lambda own: (len(own) * 2 >= largest, max(one.newest_ns for one in own)),
    )
    result: Settled[One] = Settled()
    for own in reversed(ordered):
        alone = _one_per_rank(own, is_same, better, result.disagreeing)
        if _differ(result.found, alone, is_same):
            result.earlier += [one.source for one in own]
            continue
        for rank, one in alone.items():
            known = result.found.get(rank)
            result.found[rank] = one if known is None else better(known, one)
    return result


def naming(path: Path, global_rank: int) -> tuple[str, str]:
    """Folder and name of a file without the number that is its rank."""
    matches = [m for m in AFTER_RANK.finditer(path.name) if int(m[1]) == global_rank]
    spans = [m.span(1) for m in matches]
    spans += [m.span() for m in NUMBER.finditer(path.name) if int(m[0]) == global_rank][::-1]
    if not spans:
        return str(path.parent), path.name
    begin, end = spans[0]
    return str(path.parent), f"{path.name[:begin]}#{path.name[end:]}"


def _one_per_rank(
    own: Iterable[One],
    is_same: Callable[[One, One], bool],
    better: Callable[[One, One], One],
    disagreeing: list[str],
) -> dict[int, One]:
    by_rank: dict[int, list[One]] = defaultdict(list)
    for one in own:
        by_rank[one.global_rank].append(one)
    found = {}
    for rank, several in by_rank.items():
        if all(is_same(several[0], other) for other in several[1:]):
            best = several[0]
            for other in several[1:]:
                best = better(best, other)
            found[rank] = best
        else:
            disagreeing += [one.source for one in several]
    return found


def _differ(
    found: Mapping[int, One], alone: Mapping[int, One], is_same: Callable[[One, One], bool]
) -> bool:
    return any(not is_same(found[rank], one) for rank, one in alone.items() if rank in found)
