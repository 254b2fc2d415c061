"""What template learning found in a run: a proposal with its support, or why there is none."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.verdict import Message


class PeriodStanding(StrEnum):
    """What became of a period that the data show."""

    STEP = "step"
    INNER = "inner"  # a part of the step, for example a microbatch
    OUTER = "outer"  # several steps, for example up to a log or an evaluation
    COMPETES = "competes"  # as likely as another
    IRREGULAR = "irregular"  # what lies between differs too much, on some rank
    PART = "part"  # a layer, of steps that do not recur often enough
    UNMATCHED = "unmatched"  # not the same op of its communicator on all ranks
    ENDS_EARLY = "ends_early"  # the job goes on without it, on some rank: a set-up
    TOO_FEW = "too_few"


class PeriodDoubt(StrEnum):
    """What speaks against the period that looks like the step."""

    INSERTED = "inserted"  # numbers reduced beyond the others in some: a norm, or a log
    SEVERAL = "several"  # between its gradients lie pauses as long as between two periods
    PARTIAL = "partial"  # gradients that others, in turn, lack


class CutEvidence(StrEnum):
    """What tells where in the period the step begins."""

    START = "start"  # the stream begins with the job
    END = "end"  # the stream ends with the job
    INSERTED = "inserted"  # where an evaluation, a checkpoint or a log comes in between
    ANCHOR = "anchor"  # nothing does: it is said to begin behind the anchor


class FoundPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Something that recurs, by the ops that mark it.

    Counts are of the rank that has fewest; ``regular_ratio`` is the share of equal periods on the
    rank where it is lowest, ``n_ranks`` how many ranks have the ops at all.
    """

    label: str
    standing: PeriodStanding
    n_times: int
    n_ops: int = 0
    duration_ns: int = 0
    regular_ratio: float = 0.0
    n_ranks: int = 0


class CounterExample(msgspec.Struct, frozen=True, kw_only=True):
    """A period that is not like the others: ops too many and ops too few, by kind, the same on all
    ``ranks``.

    ``seq`` is the arrival number of the op that begins it on the first of them, ``period`` counts
    from 0.
    """

    ranks: tuple[int, ...]
    period: int
    seq: int
    extra: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class TemplateLearning(msgspec.Struct, frozen=True, kw_only=True):
    """The proposal with its support. ``refusal`` is set when nothing is proposed.

    ``n_fitting_ranks`` ranks have every step where the periods say; ``n_periods`` and ``n_regular``
    are sums over ranks. ``n_groups`` communicators carry the anchor: with one, all ranks align.
    """

    name: str
    n_ranks: int = 0
    refusal: Message | None = None
    opens: str = ""
    anchor: str = ""
    close: str = ""
    cut: CutEvidence | None = None
    n_fitting_ranks: int = 0
    n_steps: int = 0
    n_periods: int = 0
    n_regular: int = 0
    n_groups: int = 0
    periods: tuple[FoundPeriod, ...] = ()
    counter_examples: tuple[CounterExample, ...] = ()
    n_counter_examples: int = 0
