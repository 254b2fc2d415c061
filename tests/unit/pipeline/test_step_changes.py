"""What changed from step to step, and how long the ranks were in each phase."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.event import NOTICE_DTYPE, OP_DTYPE
from comminsight.model.ops import NoticeReason, RecordKind
from comminsight.model.step import Phase, PhaseKind, StepEvidence, StepSummary
from comminsight.pipeline.report import (
    covered_ns,
    mean_phases,
    number_of_microbatches,
    phase_times_ns,
    step_row,
)
from comminsight.pipeline.step_changes import step_changes
from tests.unit.pipeline.test_ends import session

MS = 1_000_000
FIRST = StepEvidence(
    comm_hash=1, comm_index=1, role="DP", op=1, op_seq=1, match_seq=1, func_seq=0, size_bytes=4,
    start_ns=0, seq=1,
)  # fmt: skip


def summary(rank, step, *, template="ddp", version=1, **fields):
    return StepSummary(
        session_id=f"s{rank}", global_rank=rank, step=step, template=template,
        template_version=version, template_file_version=1, first=FIRST, last=FIRST,
        start_ns=step * 100 * MS, end_ns=(step * 100 + 80) * MS, **fields,
    )  # fmt: skip


def aligned(*ranks_of_step, **fields):
    return tuple(
        AlignedStep(step, {rank: summary(rank, step, **fields) for rank in ranks})
        for step, ranks in enumerate(ranks_of_step)
    )


def told(changes):
    return [(change.code.removeprefix("change."), change.params) for change in changes]


def test_a_job_in_which_nothing_changes():
    assert step_changes(aligned((0, 1), (0, 1)), ()) == ()
    assert step_changes((), ()) == ()


def test_ranks_that_come_and_go():
    assert told(step_changes(aligned((0, 1), (0, 1, 2, 3), (1, 2, 3)), ())) == [
        ("ranks_joined", {"step": 1, "ranks": [2, 3]}),
        ("ranks_left", {"step": 2, "ranks": [0]}),
    ]


def test_another_template_or_another_version_of_it():
    steps = (
        *aligned((0, 1, 2)),
        AlignedStep(1, {0: summary(0, 1), **{r: summary(r, 1, version=2) for r in (1, 2)}}),
        AlignedStep(2, {r: summary(r, 2, template="fsdp2", version=2) for r in (0, 1, 2)}),
    )
    assert told(step_changes(steps, ())) == [
        ("template", {"step": 1, "ranks": [1, 2], "before": "ddp 1.1", "now": "ddp 1.2"}),
        ("template", {"step": 2, "ranks": [0], "before": "ddp 1.1", "now": "fsdp2 1.2"}),
        ("template", {"step": 2, "ranks": [1, 2], "before": "ddp 1.2", "now": "fsdp2 1.2"}),
    ]


def noticed(rank, at_ns, reason, is_recording=1, event_mask=0x6, min_size_bytes=0):
    notice = np.zeros(1, NOTICE_DTYPE)
    notice["kind"], notice["reason"], notice["start_ns"] = RecordKind.NOTICE, reason, at_ns
    notice["is_recording"], notice["event_mask"] = is_recording, event_mask
    notice["min_size_bytes"] = min_size_bytes
    return replace(session(rank), records=notice.view(OP_DTYPE))


@pytest.mark.parametrize(
    ("at_ns", "step"), [(0, 0), (80 * MS, 0), (90 * MS, 1), (180 * MS, 1), (181 * MS, 2)]
)
def test_what_is_recorded_changes_with_the_step_that_is_not_over(at_ns, step):
    sessions = [noticed(rank, at_ns, NoticeReason.CONTROL, is_recording=0) for rank in (0, 1)]
    assert told(step_changes(aligned((0, 1), (0, 1)), sessions)) == [
        ("recording", {
            "step": step, "ranks": [0, 1], "what": "recording.off", "mask": "0x6",
            "size_bytes": 0,
        })
    ]  # fmt: skip


def test_the_overhead_guard_is_told_and_counters_are_not():
    sessions = [
        noticed(0, 5 * MS, NoticeReason.COUNTERS),
        noticed(1, 5 * MS, NoticeReason.OVERHEAD_GUARD, event_mask=0x2, min_size_bytes=64),
    ]
    assert told(step_changes(aligned((0, 1)), sessions)) == [
        ("overhead_guard", {
            "step": 0, "ranks": [1], "what": "recording.on", "mask": "0x2", "size_bytes": 64,
        })
    ]  # fmt: skip


def phase(kind, begin_ms, end_ms):
    return Phase(kind=PhaseKind(kind), start_ns=begin_ms * MS, end_ns=end_ms * MS)


def test_time_that_two_intervals_of_a_kind_share_counts_once():
    phases = [
        phase("forward", 0, 10), phase("grad_sync", 5, 20), phase("forward", 8, 12),
        phase("forward", 9, 11), phase("forward", 30, 31),
    ]  # fmt: skip
    assert phase_times_ns(phases) == {"forward": 13 * MS, "grad_sync": 15 * MS}


def test_means_over_the_ranks_that_have_phases():
    early = (phase("backward", 50, 60), phase("forward", 0, 10))
    late = (phase("forward", 0, 30), phase("bubble", 35, 37))
    members = [
        summary(0, 0, phases=early, n_lost=2), summary(1, 0, phases=late, n_late=1), summary(2, 0),
    ]  # fmt: skip
    assert list(mean_phases(members).items()) == [
        ("forward", 20 * MS), ("bubble", 1 * MS), ("backward", 5 * MS),
    ]  # fmt: skip
    row = step_row(AlignedStep(0, {own.global_rank: own for own in members}), world_size=3)
    assert (row.n_lost, row.n_late, row.phase_ns["forward"]) == (2, 1, 20 * MS)


def test_time_in_no_phase_is_unknown():
    own = (phase("forward", 10, 20), phase("bubble", 15, 30), phase("unknown", 40, 50))
    member = msgspec.structs.replace(
        summary(0, 0, phases=own), start_ns=10 * MS, end_ns=60 * MS, span_ns=50 * MS
    )
    assert covered_ns(own) == 30 * MS
    assert mean_phases([member]) == {
        "forward": 10 * MS, "bubble": 15 * MS, "unknown": 30 * MS
    }  # fmt: skip


def test_microbatches_are_counted_where_the_ranks_agree():
    def told(*counts):
        own = [msgspec.structs.replace(phase("forward", 0, 1), n_microbatches=n) for n in counts]
        return number_of_microbatches([summary(n, 0, phases=(one,)) for n, one in enumerate(own)])

    assert (told(4, 0, 4), told(4, 8), told(0)) == (4, 0, 0)


def steps_that_slow(first, last, **fields):
    return tuple(
        AlignedStep(
            step,
            {
                rank: summary(
                    rank, step, period_ns=(150 if first <= step <= last else 100) * MS, **fields
                )
                for rank in (0, 1)
            },
        )
        for step in range(100)
    )


def test_iterations_are_as_long_as_what_was_asked_for():
    assert step_changes(steps_that_slow(40, 99, phases=(phase("forward", 0, 80),)), ()) == ()


@pytest.mark.parametrize(("last", "code"), [(59, "slower_for_a_time"), (99, "slower")])
def test_steps_that_take_longer_are_told_with_how_long(last, code):
    steps = steps_that_slow(40, last, phases=(phase("forward", 0, 30), phase("backward", 30, 80)))
    end = {"last": last} if code == "slower_for_a_time" else {}
    assert told(step_changes(steps, ())) == [
        (code, {
            "step": 40, "ranks": [0, 1], "before_ns": 100 * MS, "now_ns": 150 * MS,
            "longer": 0.5, **end,
        })
    ]  # fmt: skip
