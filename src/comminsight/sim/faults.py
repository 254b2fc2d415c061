"""What can be planted into a simulated run. Steps and ranks count from 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LateRank:
    """Extra own work of ``extra_ns`` per step, spread over forward and backward.

    Acts from ``from_step`` to before ``until_step``, in every ``every``-th step of that range, and
    there with ``probability``.
    """

    rank: int
    extra_ns: int
    from_step: int = 0
    until_step: int = 1 << 30
    every: int = 1
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class LostRank:
    """The process lives on but never enters op ``op_index`` of ``step``, nor anything later."""

    rank: int
    step: int
    op_index: int = 0


@dataclass(frozen=True, slots=True)
class KilledRank:
    """The process dies where ``LostRank`` would stand still."""

    rank: int
    step: int
    op_index: int = 0


@dataclass(frozen=True, slots=True)
class KilledJob:
    """All processes die at one instant, ``after_ns`` after the start of the run."""

    after_ns: int


@dataclass(frozen=True, slots=True)
class SkippedOp:
    """The rank leaves out one op and goes on: control-flow divergence."""

    rank: int
    step: int
    op_index: int


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Transfers of a group take ``factor`` times as long from ``from_step`` on.

    ``group`` is a group's name or description; ``pair`` narrows it to one P2P direction (global
    ranks of sender and receiver).
    """

    group: str
    factor: float
    from_step: int = 0
    pair: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records that never reach the reader: a random ``fraction``, and ``burst`` = (first seq, n).

    ``rank`` -1 stands for every rank.
    """

    rank: int = -1
    fraction: float = 0.0
    burst: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class AbsentStep:
    """No rank communicates in this step (compute only)."""

    step: int


@dataclass(frozen=True, slots=True)
class FusedStep:
    """All ranks leave out the last op of this step, so that it runs into the next one."""

    step: int


Fault = (
    LateRank
    | LostRank
    | KilledRank
    | KilledJob
    | SkippedOp
    | SlowLink
    | LostRecords
    | AbsentStep
    | FusedStep
)


def origin_ranks(faults: tuple[Fault, ...]) -> tuple[int, ...]:
    """The ranks that a right verdict names, ascending."""
    planted = (LateRank, LostRank, KilledRank, SkippedOp)
    return tuple(sorted({fault.rank for fault in faults if isinstance(fault, planted)}))
