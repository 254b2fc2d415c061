"""The parallel layout of a run: which dimensions it has, and each rank's coordinates in them.

A dimension is a set of communicators of one role and size that share no rank and cover the world:
TP, CP, DP, PP. Context parallel groups may lie inside data parallel ones (Megatron's gradients go
over both); then the coordinate of DP counts what is outside CP. EP is an inner part of the others
and multiplies nothing. The layout is complete when the sizes multiply to the world and no two ranks
share their coordinates. Where they contradict each other there are no coordinates at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from comminsight.model.layout import LayoutDimension, LayoutProblem, ParallelLayout
from comminsight.model.ops import CommRole
from comminsight.model.topology import Communicator
from comminsight.semantics.role_clues import RoleGuess

_FACTORS = (CommRole.TP, CommRole.CP, CommRole.DP, CommRole.PP)
_SHARDED = (CommRole.DP_SHARD, CommRole.DP_REPLICATE)
_PAIR = 2
Members = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankCoordinates:
    """The layout, and by global rank ``{"tp": 0, "pp": 1, …}``."""

    layout: ParallelLayout
    by_rank: Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class _Dimension:
    """``coordinate[rank]`` in 0..size-1."""

    role: CommRole
    size: int
    stride: int
    coordinate: Mapping[int, int]
    confidence: float
    is_inferred: bool
    is_factor: bool = True

    @property
    def name(self) -> str:
        return self.role.value.lower()


def parallel_layout(
    communicators: Sequence[Communicator], world_size: int,
    world_purpose: RoleGuess | None = None, *, n_undecided: int = 0,
) -> RankCoordinates:  # fmt: skip
    """Dimensions (innermost first) and coordinates; ``world_purpose`` is what the one communicator
    of the whole world is used for, ``n_undecided`` how many move data without a known role: with
    any of those the layout is not complete. Communicators with unknown members take no part."""
    found = {role: _tiling(communicators, role, world_size) for role in (*_FACTORS, *_SHARDED)}
    if world_purpose is not None and world_purpose.role in _FACTORS:
        whole = _over_world(communicators, world_size, world_purpose)
        found[whole.role] = found[whole.role] or whole
    shard, replicate, data = (found[r] for r in (*_SHARDED, CommRole.DP))
    if shard and replicate and (data is None or data.size == shard.size * replicate.size):
        data = None
    elif data is not None:
        shard = replicate = None
    context = found[CommRole.CP]
    if data is not None and context is not None:
        data = _outside(data, context)
    factors = [found[CommRole.TP], context, shard, data, replicate, found[CommRole.PP]]
    experts = _tiling(communicators, CommRole.EP, world_size)
    return _checked(
        [d for d in factors if d is not None and d.size > 1], experts, world_size, n_undecided
    )


def _checked(
    factors: Sequence[_Dimension], experts: _Dimension | None, world_size: int, n_undecided: int
) -> RankCoordinates:
    problem, factor = _problem(factors, world_size)
    if problem is LayoutProblem.NONE and n_undecided:
        problem = LayoutProblem.UNKNOWN_GROUPS
    shown = sorted([*factors, *([experts] if experts else [])], key=_innermost)
    layout = ParallelLayout(
        world_size=world_size, is_complete=problem is LayoutProblem.NONE, problem=problem,
        unexplained_factor=factor, dimensions=tuple(_stated(one) for one in shown),
    )  # fmt: skip
    if problem in {LayoutProblem.CONTRADICTION, LayoutProblem.NOTHING}:
        return RankCoordinates(layout, {})
    ranks = sorted({rank for one in shown for rank in one.coordinate})
    by_rank = {
        rank: {one.name: one.coordinate[rank] for one in shown if rank in one.coordinate}
        for rank in ranks
    }
    return RankCoordinates(layout, by_rank)


def _problem(factors: Sequence[_Dimension], world_size: int) -> tuple[LayoutProblem, int]:
    """What keeps the layout from being complete, and the factor of the world that is missing."""
    if not factors or world_size <= 0:
        return LayoutProblem.NOTHING, max(world_size, 1)
    product = 1
    for one in factors:
        product *= one.size
    places = {tuple(one.coordinate.get(rank, -1) for one in factors) for rank in range(world_size)}
    if world_size % product or len(places) != product:
        return LayoutProblem.CONTRADICTION, 1
    if product < world_size:
        return LayoutProblem.FACTOR_MISSING, world_size // product
    return LayoutProblem.NONE, 1


def _innermost(one: _Dimension) -> tuple[int, int, int]:
    return one.stride or 1 << 40, one.size, not one.is_factor


def _stated(one: _Dimension) -> LayoutDimension:
    return LayoutDimension(
        role=one.role, size=one.size, stride=one.stride, is_inferred=one.is_inferred,
        confidence=one.confidence, is_factor=one.is_factor,
    )  # fmt: skip


def _tiling(
    communicators: Sequence[Communicator], role: CommRole, world_size: int
) -> _Dimension | None:
    """The widest groups of a role that share no rank and together are the world."""
    own = [c for c in communicators if c.role is role and c.comm_size > 1 and min(c.members) >= 0]
    groups = _chained(own) if role is CommRole.PP else {c.members for c in own}
    for size in sorted({len(members) for members in groups}, reverse=True):
        parts = sorted(members for members in groups if len(members) == size)
        covered = {rank for members in parts for rank in members}
        if len(covered) == size * len(parts) == world_size:
            return _Dimension(
                role, size, _stride(parts), _places(parts),
                min((c.role_confidence for c in own if c.is_role_inferred), default=1.0),
                any(c.is_role_inferred for c in own), is_factor=role is not CommRole.EP,
            )  # fmt: skip
    return None


def _chained(communicators: Iterable[Communicator]) -> set[Members]:
    """Groups of pipelines; communicators of two neighbouring stages each are joined to one."""
    whole = {c.members for c in communicators if c.comm_size > _PAIR}
    inside = {frozenset(pair) for members in whole for pair in _pairs_of(members)}
    pairs = [frozenset(c.members) for c in communicators if c.comm_size == _PAIR]
    chains: list[set[int]] = []
    for pair in sorted(set(pairs) - inside, key=sorted):
        touching = [chain for chain in chains if chain & pair]
        chains = [chain for chain in chains if not chain & pair]
        chains.append(set(pair).union(*touching))
    return whole | {tuple(sorted(chain)) for chain in chains}


def _pairs_of(members: Members) -> Iterable[Members]:
    return zip(members, (*members[1:], members[0]), strict=True)


def _over_world(
    communicators: Sequence[Communicator], world_size: int, purpose: RoleGuess
) -> _Dimension:
    whole = [c.members for c in communicators if c.comm_size == world_size]
    members = next((m for m in whole if min(m) >= 0), tuple(range(world_size)))
    places = {rank: place for place, rank in enumerate(members)}
    return _Dimension(purpose.role, world_size, 1, places, purpose.confidence, is_inferred=True)


def _outside(data: _Dimension, context: _Dimension) -> _Dimension:
    """DP without the CP that lies inside it; unchanged where it does not."""
    if data.size % context.size or data.size < context.size:
        return data
    order: dict[int, int] = {}
    groups: dict[int, list[int]] = {}  # by first member, as constant strides tell it
    for rank, place in data.coordinate.items():
        groups.setdefault(rank - place * data.stride, []).append(rank)
    for members in groups.values():
        inner: dict[int, int] = {}
        for rank in sorted(members, key=data.coordinate.__getitem__):
            inside = context.coordinate.get(rank, -1)
            order[rank] = inner.get(inside, 0)
            inner[inside] = order[rank] + 1
        if len(inner) != context.size or set(inner.values()) != {data.size // context.size}:
            return data
    return _Dimension(
        data.role, data.size // context.size, data.stride * context.size, order,
        data.confidence, data.is_inferred,
    )  # fmt: skip


def _places(parts: Iterable[Members]) -> dict[int, int]:
    return {rank: place for members in parts for place, rank in enumerate(members)}


def _stride(parts: Sequence[Members]) -> int:
    """The difference between neighbours where it is one and the same everywhere, else 0."""
    steps = {b - a for members in parts for a, b in pairwise(members)}
    return steps.pop() if len(steps) == 1 else 0
