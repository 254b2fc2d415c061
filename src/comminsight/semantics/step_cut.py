"""Where in its period a step begins.

The ops between two occurrences of the anchor are the rest of one step (its *tail*) and the
beginning of the next (its *head*); where the cut lies the ops alone do not say. What narrows it:

- *start*: what stands before the first anchor of a job is the head, behind some set-up;
- *end*: what stands behind the last anchor of a job is the tail, perhaps with a last evaluation;
- *inserted*: what comes between two steps now and then (evaluation, checkpoint, log) leaves the
  tail before it and the head behind it as they are;
- *anchor*: of the cuts that are left, the first one behind the anchor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.learning import CutEvidence
from comminsight.semantics.op_kinds import Detail
from comminsight.semantics.period import Periods, RankCodes

Word = tuple[int, ...]
_MAX_WORDS = 64  # periods looked at


@dataclass(frozen=True, slots=True)
class StepCut:
    """One rank's usual period in ops (``word``), of which the first ``n_tail`` end the step."""

    word: Word
    example: int  # a period with that word
    n_tail: int
    evidence: CutEvidence


def find_cut(rank: RankCodes, periods: Periods) -> StepCut:
    """The cut of one rank; there must be a regular period."""
    usual = np.flatnonzero(periods.is_regular)
    words = {int(i): _word(rank, periods, int(i)) for i in usual[-_MAX_WORDS:]}
    word, _ = Counter(words.values()).most_common(1)[0]
    example = next(i for i, found in words.items() if found == word)
    low, high, evidence = 0, len(word), CutEvidence.ANCHOR
    for least, most, kind in _evidence(rank, periods, word):
        if max(low, least) <= min(high, most):  # what contradicts stronger evidence is no evidence
            is_narrower = least > low or most < high
            low, high = max(low, least), min(high, most)
            evidence = kind if is_narrower else evidence
    return StepCut(word, example, low, evidence if low == high else CutEvidence.ANCHOR)


def agreed(cuts: Sequence[StepCut]) -> list[StepCut]:
    """The cuts of all ranks, those of equal periods made equal by majority: a rank whose first ops
    were lost begins in the middle of a step."""
    votes: dict[Word, Counter[tuple[int, CutEvidence]]] = {}
    for cut in cuts:
        votes.setdefault(cut.word, Counter())[cut.n_tail, cut.evidence] += 1
    common = {word: counted.most_common(1)[0][0] for word, counted in votes.items()}
    return [StepCut(cut.word, cut.example, *common[cut.word]) for cut in cuts]


def _evidence(
    rank: RankCodes, periods: Periods, word: Word
) -> Iterator[tuple[int, int, CutEvidence]]:
    """(least, most) ops of the tail by each piece of evidence, the strongest first."""
    n = len(word)
    codes = rank.codes[Detail.SIZE_CLASS]
    n_pattern = int(periods.last[1] - periods.end[0]) + 1
    before = tuple(codes[max(0, int(periods.last[0]) + 1 - n_pattern - 2 * n) :
                         max(0, int(periods.last[0]) + 1 - n_pattern)].tolist())  # fmt: skip
    behind = tuple(codes[int(periods.last[-1]) + 1 :][: 2 * n + 1].tolist())
    n_head, n_tail = _n_common(before[::-1], word[::-1]), _n_common(behind, word)
    stream = rank.stream
    if stream.is_from_start and n_head == len(before):
        yield n - n_head, n - n_head, CutEvidence.START
    if stream.is_to_end and n_tail == len(behind):
        yield n_tail, n_tail, CutEvidence.END
    for index in np.flatnonzero(~periods.is_regular)[-_MAX_WORDS:].tolist():
        other = _word(rank, periods, index)
        least, most = n - _n_common(other[::-1], word[::-1]), _n_common(other, word)
        if len(other) > n and least <= most:
            yield least, most, CutEvidence.INSERTED
    if stream.is_to_end:
        yield 0, n_tail, CutEvidence.END
    if stream.is_from_start:
        yield n - n_head, n, CutEvidence.START


def _word(rank: RankCodes, periods: Periods, index: int) -> Word:
    codes = rank.codes[Detail.SIZE_CLASS]
    return tuple(codes[periods.first[index] : periods.end[index]].tolist())


def _n_common(one: Word, other: Word) -> int:
    """Length of the beginning that both share."""
    n = min(len(one), len(other))
    return next((i for i in range(n) if one[i] != other[i]), n)
