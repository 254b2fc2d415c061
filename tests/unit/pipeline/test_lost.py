"""Whose records were lost and why, and what a reader is told to do about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.format.layout import LOSS_REASONS
from comminsight.model.ops import LossReason
from comminsight.model.tally import Tally
from comminsight.model.verdict import Cause, Confidence, Coverage, Message, Verdict
from comminsight.pipeline.lost import loss_notes, with_losses
from comminsight.report.catalogue import catalogue
from tests.unit.pipeline.test_ends import session

FULL_DISK = LossReason.SEGMENT_WRITE


def with_counts(rank: int, losses: dict[LossReason, int], **tally: int) -> SessionData:
    counts = np.zeros((1, LOSS_REASONS), np.int64)
    for reason, n in losses.items():
        counts[0, reason] = n
    return replace(session(rank), losses=counts, tally=Tally(tally))


def silent(*missing: Message, needed: int = 8) -> Verdict:
    return Verdict(
        rule="straggler", cause=Cause.NO_VERDICT, confidence=Confidence.NONE,
        coverage=Coverage(ranks_expected=2, ranks_seen=2), missing=missing,
        next_actions=(Message("action.record_longer", {"needed": needed}),),
    )  # fmt: skip


TOO_FEW = Message("missing.steps", {"used": 2, "needed": 8})


@pytest.mark.parametrize(
    ("losses", "tally", "told"),
    [
        ({FULL_DISK: 90}, {"seq_gaps": 70}, [("loss.segment_write", 70)]),
        ({FULL_DISK: 90}, {}, []),  # the ring still had them
        ({LossReason.SLOT_QUOTA: 5}, {"capture_lost": 5}, [("loss.slot_quota", 5)]),
        ({LossReason.MASKED: 5, LossReason.FIFO_FULL: 3}, {}, []),
    ],
)
def test_losses_are_told_by_reason(losses, tally, told) -> None:
    notes = list(loss_notes([with_counts(0, {}), with_counts(1, losses, **tally)]))
    assert [(n.params["reason"], n.params["n"]) for n in notes] == told
    assert all(note.params["ranks"] == [1] for note in notes)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_reason_has_its_words(lang: str) -> None:
    known = catalogue(lang).templates
    assert [r.name for r in LossReason if f"loss.{r.name.lower()}" not in known] == []


def test_lost_records_are_of_the_ranks_that_lost_them() -> None:
    lost = Message("missing.records", {"ranks": [], "lost": 70})
    (verdict,) = with_losses(
        [silent(lost)], [with_counts(0, {}), with_counts(1, {FULL_DISK: 70}, seq_gaps=70)], 0
    )
    assert verdict.missing == (Message("missing.records", {"ranks": [1], "lost": 70}),)
    assert Message("reason.make_room") in verdict.next_actions


@pytest.mark.parametrize(
    ("n_steps", "tally", "codes"),
    [
        (25, {"segment_frames_torn": 1}, ["reason.whole_records"]),
        (25, {}, ["action.record_longer"]),
        (3, {"segment_frames_torn": 1}, ["action.record_longer"]),
    ],
)
def test_a_longer_recording_is_asked_for_only_where_it_would_help(n_steps, tally, codes) -> None:
    (verdict,) = with_losses([silent(TOO_FEW)], [with_counts(1, {}, **tally)], n_steps)
    assert [action.code for action in verdict.next_actions] == codes


def test_a_cut_file_is_named_by_its_rank() -> None:
    notes = list(loss_notes([session(0), with_counts(3, {}, segment_frames_torn=1)]))
    assert notes == [Message("note.cut", {"ranks": [3]})]
