"""A template from the ops of one job: what recurs, which of it is the step, what bounds it.

    kinds of ops ─► periods ─► the step's period ─► the cut in it ─► drafts ─► the first that fits

Everything is counted on every rank; where the data allow no proposal the reason names what is
missing. Nothing is proposed from fewer than three whole periods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from comminsight.model.learning import (
    CounterExample,
    CutEvidence,
    FoundPeriod,
    PeriodStanding,
    TemplateLearning,
)
from comminsight.model.ops import CommRole, DType, Op
from comminsight.model.verdict import Message, MessageParam
from comminsight.semantics.op_kinds import (
    MODEL_PARALLEL,
    SMALL_BYTES,
    Detail,
    Kind,
    KindTable,
    position_of,
)
from comminsight.semantics.period import Periods, RankCodes, RankStream
from comminsight.semantics.period_choice import MIN_TIMES, Choice, Level, Marked, choose_period
from comminsight.semantics.period_doubt import review
from comminsight.semantics.step_cut import agreed, find_cut
from comminsight.semantics.template import Sequence as Symbols
from comminsight.semantics.template import Symbol, Template, sequence_label
from comminsight.semantics.template_draft import CutRank, Fit, drafts, fit

MAX_OPS = 131_072  # of each rank
_MAX_TRIED_RANKS = 8  # a draft is tried on these before it is tried on all
_MIN_SCORE = 0.95  # over all ranks
_MIN_RANK_SCORE = 0.8
_MAX_EXAMPLES = 8
_MAX_REQUIRED = 6
_LAYOUT_ROLES = (
    CommRole.TP, CommRole.PP, CommRole.CP, CommRole.EP, CommRole.EDP, CommRole.MP,
    CommRole.DP, CommRole.DP_SHARD, CommRole.DP_REPLICATE, CommRole.DIST_OPT,
)  # fmt: skip
_LAYOUT_OPS = (
    Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.REDUCE, Op.ALL_TO_ALL, Op.SEND, Op.RECV,
)  # fmt: skip
_DATA_TYPES = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class Learned:
    """The proposal (None if there is none) and what speaks for it or against any."""

    template: Template | None
    learning: TemplateLearning


def learn_template(streams: Sequence[RankStream], name: str) -> Learned:
    """A template for the job of these ranks."""
    used = [stream for stream in streams if len(stream.rows)]
    table = KindTable()
    ranks = [RankCodes(_shortened(stream), table) for stream in used]
    if not ranks:
        return _refused(name, 0, Message("learning.no_ops"))
    ranks.sort(key=lambda rank: -len(rank.starts_ns))
    world_size = max(*(r.stream.identity.world_size for r in ranks), len(ranks))
    choice = choose_period(
        ranks, table, world_size, lambda levels, found: review(ranks, levels, found, table)
    )
    if choice.step is None:
        return _refused(name, len(ranks), _why_none(ranks, choice, table), choice.periods)
    proposal = max(_proposals(ranks, choice.step, table), key=lambda found: found.score)
    learning = _learning(name, proposal, choice.periods, table)
    is_bare = choice.step.has_gradients and not choice.step.has_control
    if (
        why := _objection(proposal, has_pauses=choice.step.has_gradients and not choice.is_told)
    ) is not None:
        return Learned(None, msgspec.structs.replace(learning, refusal=why))
    named = msgspec.structs.replace(proposal.draft, name=name, is_refuted_by_pauses=is_bare)
    template = _conditioned(named, proposal.ranks, table)
    return Learned(template, _described(learning, template))


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A draft with how it does on every rank."""

    mark: Marked
    ranks: list[CutRank]
    draft: Template
    fits: list[Fit]

    @property
    def score(self) -> float:
        """1 for a perfect fit of all ranks."""
        return sum(one.score for one in self.fits) / len(self.fits)

    @property
    def is_good(self) -> bool:
        """Losses make a fit less than perfect; a wrong template is far from it."""
        return self.score >= _MIN_SCORE and self.n_misfits == 0

    @property
    def n_misfits(self) -> int:
        """Ranks on which it does not give the steps."""
        return sum(one.score < _MIN_RANK_SCORE for one in self.fits)


def _objection(proposal: _Proposal, *, has_pauses: bool) -> Message | None:
    """Why the best draft is no proposal. Of a training job (``has_pauses``) the pauses may tell
    that its steps are microbatches."""
    n_ranks = len(proposal.ranks)
    if not proposal.is_good:
        params: dict[str, MessageParam] = {"n": proposal.n_misfits, "n_ranks": n_ranks}
        return Message("learning.not_reproduced", params)
    if has_pauses and 2 * sum(one.looks_like_parts for one in proposal.fits) > n_ranks:
        return Message("learning.microbatches")
    return None


def _shortened(stream: RankStream) -> RankStream:
    """The first ops of a very long stream."""
    if len(stream.rows) <= MAX_OPS:
        return stream
    return RankStream(
        stream.identity, stream.rows[:MAX_OPS], stream.comms, stream.comm_ids,
        stream.is_from_start, is_to_end=False,
    )  # fmt: skip


def _proposals(ranks: Sequence[RankCodes], step: Level, table: KindTable) -> Iterator[_Proposal]:
    """The best draft of each pattern of the level, up to the first that fits."""
    for mark, cut_ranks in _cuts(ranks, step):
        draft, fits = _best_draft(cut_ranks, mark, table)
        yield (found := _Proposal(mark, cut_ranks, draft, fits))
        if found.is_good:
            return


def _cuts(ranks: Sequence[RankCodes], step: Level) -> list[tuple[Marked, list[CutRank]]]:
    """The patterns of the level with their cuts, the best first: of those that are equally good the
    one nearest to the end of the step."""
    found: list[tuple[Marked, list[CutRank]]] = []
    for mark in step.marks:
        pairs = list(zip(ranks, mark.periods, strict=True))
        cuts = agreed([find_cut(rank, periods) for rank, periods in pairs])
        cut_ranks = [CutRank(*pair, cut) for pair, cut in zip(pairs, cuts, strict=True)]
        found.append((mark, cut_ranks))
    return sorted(found, key=lambda entry: _rank_of(*entry))


def _rank_of(mark: Marked, ranks: Sequence[CutRank]) -> tuple[int, ...]:
    """Smaller is better."""
    n_open = sum(rank.cut.evidence is CutEvidence.ANCHOR for rank in ranks)
    n_behind = max(rank.cut.n_tail for rank in ranks)
    is_first = any(rank.begins_with_anchor for rank in ranks)
    worse = [-int(part) for part in mark.quality]
    return *worse[:3], n_open, int(is_first), n_behind, *worse[3:]


def _best_draft(
    ranks: Sequence[CutRank], mark: Marked, table: KindTable
) -> tuple[Template, list[Fit]]:
    """The draft that fits best (of equal ones the simplest, which comes first), with its fits."""
    some = [*ranks[:: max(1, len(ranks) // _MAX_TRIED_RANKS)]]
    best: tuple[float, float] = (-1.0, -1.0)
    found = None
    for draft in drafts(ranks, mark.pattern, table):
        fits = [fit(draft, rank) for rank in some]
        score = min(one.score for one in fits), min(one.between_ratio for one in fits)
        if score > best:
            best, found = score, draft
        if best == (1.0, 1.0):
            break
    assert found is not None  # noqa: S101 - there is always a draft
    return found, [fit(found, rank) for rank in ranks]


# requires and forbids


def _conditioned(template: Template, ranks: Sequence[CutRank], table: KindTable) -> Template:
    """The draft with what tells this job from others."""
    required = [*(template.closes or template.anchors)]
    required += [(position,) for position in template.opens[0][:1]]
    required += _common_calls(ranks, table)
    return msgspec.structs.replace(
        template,
        works=tuple(_gradients(ranks, table)),
        requires=tuple(dict.fromkeys(required)),
        forbids=tuple(_absent(ranks, table)),
    )


def _common_calls(ranks: Sequence[CutRank], table: KindTable) -> list[Symbols]:
    """Data that every rank moves in every regular period."""
    kinds = _shared_kinds(ranks, table)
    large = [kind for kind in kinds if kind.is_large and not kind.is_p2p]
    return [(position_of([kind]),) for kind in large[:_MAX_REQUIRED]]


def _shared_kinds(ranks: Sequence[CutRank], table: KindTable) -> list[Kind]:
    """Kinds (SIZE_CLASS) that every rank has in every regular period."""
    shared: frozenset[int] | None = None
    for rank in ranks:
        first = int(rank.periods.first[rank.cut.example])
        last = int(rank.periods.last[rank.cut.example + 1])
        codes = frozenset(np.unique(rank.codes.codes[Detail.SIZE_CLASS][first : last + 1]).tolist())
        shared = codes if shared is None else shared & codes
    return [table.kinds[code] for code in sorted(shared or ())]


def _gradients(ranks: Sequence[CutRank], table: KindTable) -> Iterator[Symbols]:
    """Reductions of gradients that every rank has in every regular period, as one position: an
    evaluation has none."""
    shared = _shared_kinds(ranks, table)
    if gradients := [kind for kind in shared if kind.is_gradient]:
        yield (position_of(gradients),)


def _absent(ranks: Sequence[CutRank], table: KindTable) -> Iterable[Symbols]:
    """Parallel groups, calls and element types of data, and control ops that this job has not."""
    seen = frozenset().union(*(rank.codes.kinds[Detail.SIZE_CLASS] for rank in ranks))
    kinds = [table.kinds[code] for code in seen]
    data = [kind for kind in kinds if kind.is_large]
    roles = {kind.role for kind in kinds}
    ops, dtypes = {kind.op for kind in data}, {kind.dtype for kind in data}
    if unseen := tuple(role for role in _LAYOUT_ROLES if role not in roles):
        yield ((Symbol(roles=unseen),),)
    if calls := tuple(op for op in _LAYOUT_OPS if op not in ops):
        yield ((Symbol(ops=calls, min_bytes=SMALL_BYTES + 1),),)
    if data and (others := tuple(dtype for dtype in _DATA_TYPES if dtype not in dtypes)):
        yield ((Symbol(dtypes=others, min_bytes=SMALL_BYTES + 1),),)
    replicas = tuple(role for role in CommRole if role in roles and role not in MODEL_PARALLEL)
    if replicas and not any(kind.is_control for kind in kinds):
        yield ((Symbol(roles=replicas, ops=(Op.ALL_REDUCE,), max_bytes=SMALL_BYTES),),)


# what is told


def _refused(
    name: str, n_ranks: int, why: Message, periods: tuple[FoundPeriod, ...] = ()
) -> Learned:
    return Learned(None, TemplateLearning(name=name, n_ranks=n_ranks, refusal=why, periods=periods))


def _why_none(ranks: Sequence[RankCodes], choice: Choice, table: KindTable) -> Message:
    if choice.rivals:
        inner, outer = (lv.best for lv in choice.rivals)
        return Message("learning.competing", {"n": inner.n_times, "n_outer": outer.n_times})
    if choice.doubt is not None:
        return Message(f"learning.doubt_{choice.doubt.value}")
    if all(len(rank.kinds[Detail.EXACT]) == 1 for rank in ranks):
        return Message("learning.one_kind")
    shared = frozenset.intersection(*(rank.kinds[Detail.CALL] for rank in ranks))
    if all(table.kinds[kind].is_p2p for kind in shared):
        return Message("learning.no_common_collective")
    standings = Counter(period.standing for period in choice.periods)
    if not standings:
        return Message("learning.nothing_recurs")
    for standing in (
        PeriodStanding.UNMATCHED, PeriodStanding.IRREGULAR, PeriodStanding.ENDS_EARLY,
        PeriodStanding.PART,
    ):  # fmt: skip
        if standings[standing]:
            return Message(f"learning.{standing.value}")
    most = max(period.n_times for period in choice.periods)
    return Message("learning.too_few", {"n": most, "n_least": MIN_TIMES})


def _learning(
    name: str, proposal: _Proposal, periods: tuple[FoundPeriod, ...], table: KindTable
) -> TemplateLearning:
    ranks, fits = proposal.ranks, proposal.fits
    in_order = sorted(ranks, key=lambda rank: rank.codes.stream.global_rank)
    examples = _examples(in_order, table)
    evidence = Counter(rank.cut.evidence for rank in ranks)
    n_periods = sum(len(rank.periods.is_regular) for rank in ranks)
    n_regular = sum(int(rank.periods.is_regular.sum()) for rank in ranks)
    return TemplateLearning(
        name=name,
        n_ranks=len(ranks),
        cut=max(CutEvidence, key=lambda kind: evidence[kind]),
        n_fitting_ranks=sum(one.is_perfect for one in fits),
        n_steps=sum(one.n_steps for one in fits),
        n_periods=n_periods,
        n_regular=n_regular,
        n_groups=proposal.mark.n_groups,
        periods=periods,
        counter_examples=tuple(examples[:_MAX_EXAMPLES]),
        n_counter_examples=n_periods - n_regular,
    )


def _described(learning: TemplateLearning, template: Template) -> TemplateLearning:
    close = template.closes[0] if template.closes else None
    return msgspec.structs.replace(
        learning,
        opens=sequence_label(template.opens[0]),
        anchor=sequence_label(template.anchors[0]),
        close=sequence_label(close) if close else template.learn,
    )


def _examples(ranks: Sequence[CutRank], table: KindTable) -> list[CounterExample]:
    """The first periods that are not like the others, each once for all ranks that have it."""
    found: dict[tuple[int, tuple[str, ...], tuple[str, ...]], list[tuple[int, int]]] = {}
    for rank in ranks:
        calls, periods = rank.codes.codes[Detail.CALL], rank.periods
        usual = Counter(_calls_of(calls, periods, rank.cut.example))
        for index in np.flatnonzero(~periods.is_regular)[:_MAX_EXAMPLES].tolist():
            own = Counter(_calls_of(calls, periods, index))
            key = index, _counted(own - usual, table), _counted(usual - own, table)
            seq = int(rank.codes.stream.rows["seq"][periods.first[index]])
            found.setdefault(key, []).append((rank.codes.stream.global_rank, seq))
    return [
        CounterExample(
            ranks=tuple(rank for rank, _ in places), period=period, seq=places[0][1],
            extra=extra, missing=missing,
        )
        for (period, extra, missing), places in sorted(found.items())
    ]  # fmt: skip


def _calls_of(calls: np.ndarray, periods: Periods, index: int) -> list[int]:
    found: list[int] = calls[periods.first[index] : periods.end[index]].tolist()
    return found


def _counted(calls: Counter[int], table: KindTable) -> tuple[str, ...]:
    return tuple(f"{n} × {table.label([code])}" for code, n in sorted(calls.items()))
