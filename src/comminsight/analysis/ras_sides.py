"""Where RAS counted unlike numbers of launches: who is behind, who is ahead, and whether it moves.

RAS names the few that differ; who is behind may be the many. Both sides are told here, the missing
one as the rest of the communicator. Numbers of ranks that the communicator cannot have are left out
and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.model.ras import RasAnswer, RasCommunicator, RasReading, launched_by


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
    def counts(self) -> tuple[int, int, int, int]:
        """What changes when any rank moves."""
        return self.n_behind, self.n_launched, self.n_ahead, self.n_launched_ahead


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
    """Sides of the newest answer that hold them, with the source of an earlier answer that counts
    the same, "" where none does: one answer alone may show ranks on the move."""
    earlier: dict[tuple[int, str, int], list[tuple[RasSides, str]]] = {}
    newest: dict[tuple[int, str, int], tuple[RasSides, RasReading]] = {}
    for reading in sorted(readings, key=lambda one: (one.observed_mono_ns, one.answer.timestamp)):
        for sides in ras_sides(reading.answer):
            if sides.place in newest:
                known, source = newest[sides.place]
                earlier.setdefault(sides.place, []).append((known, source.source))
            newest[sides.place] = sides, reading
    for place, (sides, reading) in newest.items():
        same = [source for old, source in earlier.get(place, ()) if old.counts == sides.counts]
        yield sides, reading, same[0] if same else ""
