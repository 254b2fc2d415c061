"""Process groups that ranks have under one name with other members, or in another order.

torch numbers the groups of a process as they are made, and all ranks make all groups: so one number
is one group. Two kinds of difference are told apart. *Contradicted*: a rank counts another one as a
member, and that one has the group otherwise. *Apart*: each rank's group is that of its members, but
others have a group without them under the same name; a call that splits a group into parts leaves
that behind rightly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from comminsight.model.job_evidence import GroupClaim

DEFAULT_NAME = "0"  # of the group that all ranks make first

Claims = Mapping[int, Mapping[str, GroupClaim]]  # by rank and name


@dataclass(frozen=True, slots=True)
class GroupConflict:
    """One name with the claims on it, the one of most ranks first.

    ``odd`` are the ranks that contradict more than half of all those involved; () where nobody
    stands alone, or where the groups are only apart.
    """

    name: str
    claims: tuple[GroupClaim, ...]  # one of each kind; ranks in ``ranks``
    ranks: tuple[tuple[int, ...], ...]
    is_contradicted: bool
    odd: tuple[int, ...] = ()

    @property
    def involved(self) -> tuple[int, ...]:
        """All ranks that have a group of this name, ascending."""
        return tuple(sorted(rank for ranks in self.ranks for rank in ranks))


def group_conflicts(groups: Sequence[GroupClaim]) -> list[GroupConflict]:
    """Those of names that are numbers, by number. Names made of hashes cannot collide by mistake,
    and empty ones tell nothing. Ranks that do not even agree on the default group are not of one
    job, and nothing is told of them."""
    claims = _by_rank(groups)
    worlds = {own[DEFAULT_NAME].members for own in claims.values() if DEFAULT_NAME in own}
    if len(worlds) > 1:
        return []
    swapped = _swapped(claims)
    found = (_conflict(name, claims, swapped) for name in _numbers(groups))
    return [conflict for conflict in found if conflict is not None]


def _numbers(groups: Iterable[GroupClaim]) -> list[str]:
    names = {group.name for group in groups if group.name.isascii() and group.name.isdecimal()}
    return sorted(names, key=lambda name: (len(name), name))


def _by_rank(groups: Iterable[GroupClaim]) -> Claims:
    """Without the names of which one process tells two different things."""
    found: dict[int, dict[str, GroupClaim]] = defaultdict(dict)
    double = set()
    for group in groups:
        known = found[group.global_rank].setdefault(group.name, group)
        if known.members != group.members:
            double.add((group.global_rank, group.name))
    for rank, name in double:
        del found[rank][name]
    return found


def _conflict(
    name: str, claims: Claims, swapped: frozenset[tuple[int, int, str]]
) -> GroupConflict | None:
    own = {rank: named[name] for rank, named in claims.items() if name in named}
    if len({(claim.members, claim.desc) for claim in own.values()}) < 2:
        return None  # before all pairs are looked at: the group of all ranks has a million
    against = set(_contradictions(own, swapped, name))
    kinds: dict[tuple[tuple[int, ...], str], list[int]] = defaultdict(list)
    for rank, claim in sorted(own.items()):
        kinds[claim.members, claim.desc if against else ""].append(rank)
    if len(kinds) < 2 or not (against or len({members for members, _ in kinds}) > 1):
        return None
    ordered = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    return GroupConflict(
        name=name,
        claims=tuple(own[ranks[0]] for ranks in ordered),
        ranks=tuple(map(tuple, ordered)),
        is_contradicted=bool(against),
        odd=_odd(against, len({rank for pair in against for rank in pair})),
    )


def _contradictions(
    own: Mapping[int, GroupClaim], swapped: frozenset[tuple[int, int, str]], name: str
) -> Iterator[tuple[int, int]]:
    """Pairs of ranks, the lower first, of which one counts the other in, who has it otherwise."""
    for rank, claim in own.items():
        for member in claim.members:
            other = own.get(member)
            if other is None or member == rank:
                continue
            low, high = min(rank, member), max(rank, member)
            if other.members != claim.members or (low, high, name) in swapped:
                yield low, high


def _swapped(claims: Claims) -> frozenset[tuple[int, int, str]]:
    """(rank, rank, name) of groups of equal members that two ranks have under each other's names,
    as their descriptions tell: they made them in another order."""
    named: dict[tuple[int, ...], dict[str, set[tuple[str, int]]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for rank, own in claims.items():
        for name, claim in own.items():
            if claim.desc not in {"", "undefined"}:
                named[claim.members][claim.desc].add((name, rank))
    found = set()
    for members, by_desc in named.items():
        if len(by_desc) < 2:
            continue
        unique = {
            desc: held for desc, held in by_desc.items() if len({r for _, r in held}) == len(held)
        }
        for held in unique.values():
            for name, rank in held:
                found |= {
                    (min(rank, other), max(rank, other), shown)
                    for other_name, other in held
                    if other_name != name and {rank, other} <= set(members)
                    for shown in (name, other_name)
                }
    return frozenset(found)


def _odd(pairs: Iterable[tuple[int, int]], n_involved: int) -> tuple[int, ...]:
    counts = Counter(rank for pair in pairs for rank in pair)
    return tuple(sorted(rank for rank, n in counts.items() if 2 * n > n_involved > 2))
