"""Recording that was switched off while the job went on: what is left out, and what is said."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.format.layout import LOSS_REASONS
from comminsight.model.ops import Backend, LossReason, NoticeReason
from comminsight.model.step import StepSummary
from comminsight.model.verdict import Cause, Confidence, Coverage, Message, Verdict
from comminsight.pipeline.observe import rank_view
from comminsight.pipeline.pauses import (
    Pause,
    doubted,
    is_silent,
    n_switched_off,
    off_ratio,
    pauses,
    without_pauses,
)
from tests.builders.records import MS, allreduce, comm_row, comm_rows, notice, ops
from tests.unit.pipeline.test_ends import session
from tests.unit.pipeline.test_step_changes import FIRST


def switched(*moments: tuple[int, int], heartbeat_ms: int = 0) -> SessionData:
    """A session of 100 ms with (ms, is recording) notices."""
    told = [
        notice(2 + n, at, NoticeReason.CONTROL, is_recording=on)
        for n, (at, on) in enumerate(moments)
    ]
    records = ops(allreduce(1, 1.0), *told, allreduce(2 + len(told), 99, ms=1))
    return replace(session(0), records=records, heartbeat_mono_ns=heartbeat_ms * MS)


@pytest.mark.parametrize(
    ("moments", "heartbeat_ms", "found"),
    [
        ((), 0, []),
        (((20, 1),), 0, []),
        (((20, 0), (60, 1)), 0, [(20, 60)]),
        (((20, 0), (30, 0), (60, 1), (70, 0), (75, 1)), 0, [(20, 60), (70, 75)]),
        (((20, 0),), 0, [(20, 100)]),
        (((20, 0),), 300, [(20, 300)]),
    ],
)
def test_pauses(moments, heartbeat_ms, found) -> None:
    own = pauses(switched(*moments, heartbeat_ms=heartbeat_ms))
    assert own == tuple(Pause(begin * MS, end * MS) for begin, end in found)


def test_how_long_a_step_took_that_holds_a_pause_is_not_known() -> None:
    one = switched((20, 0), (60, 1))
    name = one.identity.session_id
    steps = tuple(
        StepSummary(
            session_id=name, global_rank=0, step=n, template="ddp", template_version=1,
            template_file_version=1, first=FIRST, last=FIRST, start_ns=begin * MS, end_ns=end * MS,
            span_ns=(end - begin) * MS, period_ns=period * MS, gap_ns=1,
        )
        for n, (begin, end, period) in enumerate([(0, 8, 10), (10, 18, 55), (65, 70, 10)])
    )  # fmt: skip
    seen = without_pauses({name: steps}, [one])[name]
    assert [s.coverage_complete for s in seen] == [True, False, True]
    assert [s.period_ns for s in seen] == [10 * MS, 0, 10 * MS]


def test_a_health_that_was_not_seen_all_of_the_time_is_not_sure() -> None:
    healthy = Verdict(
        rule="straggler",
        cause=Cause.HEALTHY,
        confidence=Confidence.HIGH,
        coverage=Coverage(ranks_expected=1, ranks_seen=1),
    )
    assert doubted([healthy], [switched()]) == (healthy,)
    (doubtful,) = doubted([healthy], [switched((20, 0), (60, 1))])
    assert doubtful.confidence is Confidence.LOW
    said = Message("reason.recording_off", {"ranks": [0], "off_ns": 40 * MS})
    assert doubtful.missing == (said,)


def test_what_was_passed_over_on_purpose_is_counted() -> None:
    losses = np.zeros((2, LOSS_REASONS), np.int64)
    losses[1, [LossReason.MASKED, LossReason.BELOW_MIN_SIZE, LossReason.SLOTS_FULL]] = 5, 2, 100
    assert n_switched_off(replace(session(0), losses=losses)) == 7
    assert n_switched_off(session(0)) == 0


ALL = {"event_mask": (1 << 32) - 1}


@pytest.mark.parametrize(
    ("fields", "masked", "silent"),
    [
        (None, 0, False),
        (None, 4, True),  # off or masked from the start
        ({"is_recording": 0} | ALL, 0, True),
        ({"is_recording": 1} | ALL, 4, False),
        ({"is_recording": 1, "event_mask": 2}, 0, True),
        ({"is_recording": 1, "min_size_bytes": 64} | ALL, 0, True),
    ],
)
def test_a_rank_that_leaves_no_trace_is_not_absent_for_that(fields, masked, silent) -> None:
    told = [] if fields is None else [notice(2, 20, NoticeReason.CONTROL, **fields)]
    losses = np.zeros((1, LOSS_REASONS), np.int64)
    losses[0, LossReason.MASKED] = masked
    one = replace(session(0), records=ops(allreduce(1, 1.0), *told), losses=losses)
    assert is_silent(one) is silent
    view = rank_view(one, np.zeros(2, np.int64))
    assert view.state.is_whole is not silent
    assert (view.complete_from_seq == 0) is silent


def test_nccl_that_is_asked_for_no_events_tells_no_calls() -> None:
    row = {backend: comm_rows(comm_row(1, backend=backend)) for backend in Backend}
    off = {"profiler_mask": 0}
    assert is_silent(replace(session(0), comms=row[Backend.NCCL], settings=off))
    assert not is_silent(replace(session(0), comms=row[Backend.GLOO], settings=off))
    assert not is_silent(
        replace(session(0), comms=row[Backend.NCCL], settings={"profiler_mask": 1})
    )


def test_the_share_of_time_that_was_off() -> None:
    one = switched((20, 0), (60, 1))
    from_boot = msgspec.structs.replace(one.identity, created_mono_ns=0)
    assert off_ratio([replace(one, identity=from_boot)]) == pytest.approx(0.4)
    assert off_ratio([]) == 0.0
