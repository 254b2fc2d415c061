"""Verdicts on the records themselves: what makes one, what is too little for one, and that they
take nothing from verdicts that do not rest on stamps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comminsight.analysis.record_quality import EndBeforeEntry, EndDrift, RankRecords
from comminsight.diagnosis import codes_records as codes
from comminsight.diagnosis.recorded_data import RecordFaults, with_data_verdicts
from comminsight.model.verdict import Cause, Confidence, Coverage, Verdict

WHOLE = Coverage(ranks_expected=4, ranks_seen=4)
SOUND = tuple(RankRecords(rank, n_ops=1000) for rank in range(4))


def said(cause: Cause, *culprits: int, rule: str = "straggler") -> Verdict:
    return Verdict(
        rule=rule, cause=cause, confidence=Confidence.HIGH, coverage=WHOLE, culprits=culprits
    )


def with_one(**facts: int) -> RecordFaults:
    return RecordFaults((*SOUND[:3], replace(SOUND[3], **facts)))


STRAGGLER = said(Cause.COMPUTE_STRAGGLER, 2)
HANG = said(Cause.RANK_NOT_ENTERED, 1, rule="hang")


def codes_told(verdicts: tuple[Verdict, ...], cause: Cause) -> list[str]:
    return [e.message.code for v in verdicts if v.cause is cause for e in v.evidence]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"n_reversed": 3, "shift_ns": 1}, codes.RECORDS_REVERSED),
        ({"n_reversed": 1, "shift_ns": 2_000_000}, codes.RECORDS_REVERSED),
        ({"n_zero": 21}, codes.RECORDS_ZERO),
        ({"n_absurd": 1, "absurd_bytes": 1 << 60}, codes.RECORDS_ABSURD),
    ],
)
def test_what_cannot_be_is_told_and_no_speed_is_judged_by_it(
    facts: dict[str, int], code: str
) -> None:
    found = with_data_verdicts([HANG, STRAGGLER], with_one(**facts), WHOLE)
    assert [v.cause for v in found] == [
        Cause.RANK_NOT_ENTERED, Cause.DATA_CORRUPT, Cause.NO_VERDICT,
    ]  # fmt: skip
    assert found[0] == HANG
    assert codes_told(found, Cause.DATA_CORRUPT) == [code]
    assert [(m.code, m.params) for m in found[2].missing] == [(codes.MISSING_SOUND, {"ranks": [3]})]
    assert not found[1].culprits


@pytest.mark.parametrize(
    ("facts", "cause", "told"),
    [
        ({"n_bad_frames": 1}, Cause.DATA_CORRUPT, [codes.BAD_FRAMES]),
        ({"n_bad_records": 2}, Cause.DATA_CORRUPT, [codes.BAD_VALUES]),
        ({"n_unread_files": 1}, Cause.DATA_INCOMPLETE, [codes.UNREAD_FILES]),
        ({"n_filtered": 500}, Cause.DATA_INCOMPLETE, [codes.FILTERED]),
        (
            {"n_lost": 60, "n_missing": 60, "n_holes": 2, "longest": 50},
            Cause.DATA_INCOMPLETE, [codes.LOST_OPS, codes.SEQ_HOLES],
        ),
        (
            {"n_lost": 60, "n_overwritten": 60},
            Cause.DATA_INCOMPLETE, [codes.LOST_OPS, codes.OVERWRITTEN],
        ),
    ],
)  # fmt: skip
def test_what_is_lost_or_left_out_stands_beside_what_the_rest_tells(
    facts: dict[str, int], cause: Cause, told: list[str]
) -> None:
    found = with_data_verdicts([STRAGGLER], with_one(**facts), WHOLE)
    assert [v.cause for v in found] == [Cause.COMPUTE_STRAGGLER, cause]
    assert found[0] == STRAGGLER
    assert codes_told(found, cause) == told


@pytest.mark.parametrize(
    "faults",
    [
        with_one(),
        with_one(n_reversed=2, shift_ns=900_000),
        with_one(n_zero=20),
        with_one(n_lost=30, n_missing=30, n_holes=3),
        with_one(n_filtered=30),
        RecordFaults(SOUND, before_entry=(EndBeforeEntry((1,), 2, 900, 5_000_000),)),
        RecordFaults(SOUND, before_entry=(EndBeforeEntry((1,), 9, 900, 900_000),)),
        RecordFaults(SOUND, drifts=(EndDrift(1, 0.0009, 50_000_000, 10),)),
        RecordFaults(SOUND, drifts=(EndDrift(1, 0.01, 50_000_000, 13_000_000),)),
    ],
    ids=range(9),
)
def test_a_few_of_anything_say_nothing(faults: RecordFaults) -> None:
    assert with_data_verdicts([STRAGGLER, HANG], faults, WHOLE) == (STRAGGLER, HANG)


@pytest.mark.parametrize(
    "faults",
    [
        RecordFaults(SOUND, before_entry=(EndBeforeEntry((1,), 3, 900, 2_000_000),)),
        RecordFaults(SOUND, drifts=(EndDrift(1, -0.002, 50_000_000, 12_000_000),)),
    ],
    ids=["before", "drift"],
)
def test_stamps_that_are_at_odds_with_those_of_others_cannot_be(faults: RecordFaults) -> None:
    link = said(Cause.SLOW_LINK, 1, rule="slow_link")
    found = with_data_verdicts([STRAGGLER, link], faults, WHOLE)
    assert [v.cause for v in found] == [Cause.DATA_CORRUPT, Cause.NO_VERDICT]


@pytest.mark.parametrize(("is_over", "seen", "is_told"), [
    (True, 3, True), (False, 3, False), (True, 0, False), (True, 4, False),
])  # fmt: skip
def test_ranks_without_records_are_told_once_nothing_will_come(
    is_over: bool, seen: int, is_told: bool
) -> None:
    part = Coverage(ranks_expected=4, ranks_seen=seen, ranks_missing=tuple(range(seen, 4)))
    found = with_data_verdicts([], replace(with_one(), is_over=is_over), part)
    assert (codes_told(found, Cause.DATA_INCOMPLETE) == [codes.UNSEEN_RANKS]) == is_told
