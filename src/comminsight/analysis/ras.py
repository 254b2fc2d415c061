"""An answer of NCCL's RAS joined to the communicators of the run, by hash.

Where a hash is not unique on both sides nothing is joined by it: a guess would name wrong ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.model.ras import RasAnswer, RasCommunicator, RasProcess, RasRank
from comminsight.model.topology import UNKNOWN_RANK, Communicator

Device = tuple[RasProcess, int]  # a process and its CUDA device: one rank


@dataclass(frozen=True, slots=True)
class RasMatch:
    """One communicator of the run and how RAS sees it."""

    communicator: Communicator
    seen: RasCommunicator

    def named(self, comm_rank: int) -> int:
        """The global rank of a member by the run's own records, -1 where they do not tell."""
        members = self.communicator.members
        return members[comm_rank] if 0 <= comm_rank < len(members) else UNKNOWN_RANK


@dataclass(frozen=True, slots=True)
class RasJoin:
    """``matches`` by comm_id; ``n_foreign`` communicators of the answer belong to none of ours."""

    matches: tuple[RasMatch, ...]
    n_foreign: int
    _by_device: dict[Device, int] = field(default_factory=dict)
    _by_process: dict[RasProcess, tuple[int, ...]] = field(default_factory=dict)

    def global_rank(self, match: RasMatch, rank: RasRank) -> int:
        """The member's global rank: by the records, else as the same process and device has it in
        another communicator; -1 where neither tells."""
        own = match.named(rank.comm_rank)
        if own != UNKNOWN_RANK:
            return own
        return self._by_device.get((rank.process, rank.cuda_device), UNKNOWN_RANK)

    def ranks_of(self, process: RasProcess) -> tuple[int, ...]:
        """The global ranks that a process is known to be, ascending."""
        return self._by_process.get(process, ())


def join_ras(answer: RasAnswer, communicators: Iterable[Communicator]) -> RasJoin:
    """Every communicator that is on both sides, each once."""
    ours: dict[int, list[Communicator]] = defaultdict(list)
    for communicator in communicators:
        ours[communicator.comm_hash].append(communicator)
    theirs: dict[int, list[RasCommunicator]] = defaultdict(list)
    for seen in answer.communicators:
        theirs[seen.comm_hash].append(seen)
    found = [
        match
        for comm_hash in sorted(ours.keys() & theirs.keys() - {0})
        for match in _matches(ours[comm_hash], theirs[comm_hash])
    ]
    matches = tuple(sorted(found, key=lambda match: match.communicator.comm_id))
    by_device = _devices(matches)
    by_process: dict[RasProcess, set[int]] = defaultdict(set)
    for (process, _), rank in by_device.items():
        by_process[process].add(rank)
    return RasJoin(
        matches,
        sum(len(found) for comm_hash, found in theirs.items() if comm_hash not in ours),
        by_device,
        {process: tuple(sorted(ranks)) for process, ranks in by_process.items()},
    )


def _matches(ours: Sequence[Communicator], theirs: Sequence[RasCommunicator]) -> Iterable[RasMatch]:
    """Pairs of equal size in which neither side could be another one."""
    for seen in theirs:
        fitting = [one for one in ours if _is_size(one, seen)]
        rivals = [other for other in theirs if fitting and _is_size(fitting[0], other)]
        if len(fitting) == len(rivals) == 1:
            yield RasMatch(fitting[0], seen)


def _is_size(one: Communicator, seen: RasCommunicator) -> bool:
    return seen.comm_size in {0, one.comm_size}


def _devices(matches: Sequence[RasMatch]) -> dict[Device, int]:
    """Which global rank a process is on a device, where all communicators agree on it."""
    said: dict[Device, set[int]] = defaultdict(set)
    for match in matches:
        for rank in match.seen.ranks:
            if rank.process.pid >= 0 and (named := match.named(rank.comm_rank)) != UNKNOWN_RANK:
                said[rank.process, rank.cuda_device].add(named)
    return _agreed(said)


def _agreed(said: Mapping[Device, set[int]]) -> dict[Device, int]:
    return {device: next(iter(ranks)) for device, ranks in said.items() if len(ranks) == 1}
