"""Where RAS counted unlike numbers of launches: who is behind, who is ahead, and whether it moves.

RAS names the few that differ; who is behind may be the many. Both sides are told here, the missing
one as the rest of the communicator. Numbers of ranks that the communicator cannot have are left out
and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.model.ras import RasAnswer, RasCommunicator, RasReading, launched_by

MIN_APART_S = 10.0  # a job that moves launches many ops in this time


@dataclass(frozen=True, slots=True)
class RasSides:
    """One function of one communicator. ``behind`` and ``ahead`` are comm_ranks as far as they are
    known; ``n_behind`` and ``n_ahead`` count all of them."""

    comm_hash: int
    second_hash: str
    comm_size: int
    op: int
    behind: tuple[int, ...]
    n_behind: int
    n_launched: int  # the least
    ahead: tuple[int, ...]
    n_ahead: int
    n_launched_ahead: int  # the most
    n_absurd: int

    @property
    def place(self) -> tuple[int, str, int]:
        """What two answers about the same counts have in common."""
        return self.comm_hash, self.second_hash, self.op

    @property
    def counts(self) -> tuple[tuple[int, ...], int, int, int, int]:
        """What changes when any rank moves."""
        numbers = self.n_behind, self.n_launched, self.n_ahead, self.n_launched_ahead
        return self.behind, *numbers


def ras_sides(answer: RasAnswer) -> list[RasSides]:
    """One for each function of each communicator whose members launched unlike numbers."""
    found = []
    for communicator in answer.communicators:
        for op in sorted({group.op for group in communicator.launches}):
            sides = _sides(communicator, op)
            if sides is not None:
                found.append(sides)
    return found


def _sides(communicator: RasCommunicator, op: int) -> RasSides | None:
    groups = [group for group in communicator.launches if group.op == op]
    most = max(group.n_launched for group in groups)
    late = [group for group in groups if group.n_launched < most]
    if not late:
        return None
    size = communicator.comm_size
    counts = launched_by(communicator, op)
    known = {rank: n for rank, n in counts.items() if rank >= 0 and (not size or rank < size)}
    n_behind = sum(group.n_ranks for group in late)
    return RasSides(
        comm_hash=communicator.comm_hash,
        second_hash=communicator.second_hash,
        comm_size=size,
        op=op,
        behind=tuple(sorted(rank for rank, n in known.items() if n < most)),
        n_behind=n_behind,
        n_launched=min(group.n_launched for group in late),
        ahead=tuple(sorted(rank for rank, n in known.items() if n == most)),
        n_ahead=sum(group.n_ranks for group in groups) - n_behind,
        n_launched_ahead=most,
        n_absurd=len(counts) - len(known),
    )


def still_sides(readings: Sequence[RasReading]) -> Iterator[tuple[RasSides, RasReading, str]]:
    """Sides of the newest answer that holds them, with the source of an answer at least
    ``MIN_APART_S`` before that counts the same, "" where none does: one answer alone, or two of one
    moment, may show ranks on the move."""
    newest: dict[tuple[int, str, int], tuple[RasSides, RasReading]] = {}
    earlier: dict[tuple[int, str, int], list[tuple[RasSides, RasReading]]] = defaultdict(list)
    for reading in sorted(readings, key=_moment):
        for sides in ras_sides(reading.answer):
            earlier[sides.place].append((sides, reading))
            newest[sides.place] = sides, reading
    for place, (sides, reading) in newest.items():
        same = [
            old.source
            for known, old in earlier[place]
            if known.counts == sides.counts and _apart_s(old, reading) >= MIN_APART_S
        ]
        yield sides, reading, same[0] if same else ""


def _moment(reading: RasReading) -> tuple[int, str, int]:
    return reading.observed_mono_ns, reading.answer.timestamp, reading.written_ns


def _apart_s(first: RasReading, second: RasReading) -> float:
    """Seconds from one answer to the other: by their own stamps, which texts do not have, else by
    when their files were written; 0 where neither tells."""
    if first.answer.taken_ns and second.answer.taken_ns:
        return (second.answer.taken_ns - first.answer.taken_ns) / 1e9
    if first.written_ns and second.written_ns:
        return (second.written_ns - first.written_ns) / 1e9
    return 0.0
