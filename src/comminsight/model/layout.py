"""The parallel layout of a run as it was reconstructed from its communicators."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.ops import CommRole


class LayoutProblem(StrEnum):
    """Why a layout is not complete; each is a catalogue code under ``layout``."""

    NONE = ""
    NOTHING = "nothing_known"  # no dimension could be told
    FACTOR_MISSING = "factor_missing"  # ranks that no known communicator puts in relation
    UNKNOWN_GROUPS = "unknown_groups"  # data move on communicators whose role could not be told
    CONTRADICTION = "contradiction"  # the dimensions do not fit together: no coordinates


class LayoutDimension(msgspec.Struct, frozen=True, kw_only=True):
    """One dimension. ``stride`` is the rank difference between neighbours, 0 where it varies.

    One that is no factor (EP) is an inner part of others. ``confidence`` is the least of its
    communicators, 1 where names gave the roles.
    """

    role: CommRole
    size: int
    stride: int = 0
    is_inferred: bool = False
    confidence: float = 1.0
    is_factor: bool = True


class ParallelLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Dimensions, the innermost first. Complete when their sizes multiply to the world and no two
    ranks have the same coordinates; ``unexplained_factor`` is what is missing of the product."""

    world_size: int
    dimensions: tuple[LayoutDimension, ...] = ()
    is_complete: bool = False
    problem: LayoutProblem = LayoutProblem.NOTHING
    unexplained_factor: int = 1

    @property
    def order(self) -> str:
        """For example ``tp2-cp2-dp4-pp2``: the factors, the innermost first."""
        return "-".join(f"{d.role.value.lower()}{d.size}" for d in self.dimensions if d.is_factor)
