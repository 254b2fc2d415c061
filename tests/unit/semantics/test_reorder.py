"""Order, lateness, holds and markers, each on a stream of a few records (times in ms)."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.model.ops import NoticeReason, OpFlag, OpState, RecordKind
from comminsight.semantics.arrival import NEVER_NS, OrderSettings
from comminsight.semantics.reorder import Reorder
from tests.builders import (
    MS,
    allreduce,
    drain,
    net_summary,
    notice,
    open_marker,
    ops,
    overdue_marker,
    record,
)

SETTINGS = OrderSettings(safe_window_ns=100 * MS, push_window_ns=10 * MS)


def starts_ms(rows: np.ndarray) -> list[int]:
    return (rows["start_ns"] // MS).tolist()


def stream(*times_ms: float) -> np.ndarray:
    """Ops that arrive in the given order."""
    return ops(*(allreduce(seq, at_ms) for seq, at_ms in enumerate(times_ms, 1)))


def flow(order: Reorder) -> tuple[int, int]:
    """(read, accounted for)."""
    names = ("order_emitted", "order_late", "order_bad", "order_dropped", "order_markers")
    return order.tally["order_read"], sum(order.tally[name] for name in names) + order.n_pending


def test_records_come_out_sorted_once_they_are_older_than_the_safe_window() -> None:
    order = Reorder(SETTINGS)
    assert starts_ms(order.push(stream(30, 10, 20, 139))) == [
        10,
        20,
    ]  # cut = 30 = (139 - 100) // 10
    assert order.n_pending == 2
    assert starts_ms(order.push(stream(5000))) == [30, 139]  # the empty windows cost nothing
    assert starts_ms(order.drain()) == [5000]
    assert flow(order) == (5, 5)


def test_equal_starts_keep_their_arrival() -> None:
    order = Reorder(SETTINGS)
    order.push(stream(10, 10, 10, 5))
    assert order.drain()["seq"].tolist() == [4, 1, 2, 3]


def test_lateness_depends_on_the_records_before_it_only() -> None:
    # 45 comes when the cut is at 50, although the reader sees both at once
    order = Reorder(SETTINGS)
    assert starts_ms(order.push(stream(40, 150, 45, 50))) == [40]
    assert order.tally["order_late"] == 1
    assert starts_ms(order.drain()) == [50, 150]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_open_op_holds_the_cut_until_it_completes(at_once: bool) -> None:
    long_op = allreduce(50, 10, ms=20_000, op_seq=1000)
    batch = [
        open_marker(long_op, 1),
        *(allreduce(seq, 10_000 + seq * 100, op_seq=seq) for seq in range(2, 50)),
        long_op,
        allreduce(51, 20_100),
    ]
    order = Reorder(SETTINGS)
    pushes = [ops(*batch)] if at_once else batch
    emitted = [row for push in pushes for row in starts_ms(order.push(push))]
    assert emitted[0] == 10
    assert emitted == sorted(emitted)
    assert order.n_holds == 0
    assert order.tally["order_late"] == 0
    assert order.tally["order_markers"] == 1


@pytest.mark.parametrize("state", [OpState.ABORTED, OpState.FAILED])
def test_any_completion_releases_the_hold(state: OpState) -> None:
    order = Reorder(SETTINGS)
    op = allreduce(2, 10, op_seq=9, state=state)
    order.push(ops(open_marker(op, 1), op))
    assert order.n_holds == 0
    assert starts_ms(order.push(stream(500))) == [10]


def test_overdue_releases_and_a_later_completion_is_late_by_the_rule() -> None:
    op = allreduce(9, 10, ms=900, op_seq=9)
    order = Reorder(SETTINGS)
    order.push(ops(open_marker(op, 1), overdue_marker(op, 2), allreduce(3, 500, op_seq=10), op))
    assert order.tally["order_late"] == 1
    early = Reorder(SETTINGS)
    early.push(ops(open_marker(op, 1), overdue_marker(op, 2), allreduce(3, 100, op_seq=10), op))
    assert starts_ms(early.drain()) == [10, 100]


@pytest.mark.parametrize(
    "bound", [{"max_hold_age_ns": 300 * MS}, {"max_hold_records": 3}, {"max_holds": 1}]
)
def test_a_hold_is_bounded_by_age_records_and_number(bound: dict[str, int]) -> None:
    settings = OrderSettings(safe_window_ns=100 * MS, push_window_ns=10 * MS, **bound)
    forever = allreduce(99, 10, op_seq=99)
    other = allreduce(98, 20, op_seq=98)
    rows = [allreduce(seq, 100 * seq, op_seq=seq) for seq in range(3, 9)]
    order = Reorder(settings)
    order.push(ops(open_marker(forever, 1), open_marker(other, 2), *rows))
    assert order.tally["order_holds_expired"] >= 1
    assert order.tally["order_late"] == 0
    # without the bound nothing after 10 ms could have been emitted
    assert order.tally["order_emitted"] > 0 or bound == {"max_holds": 1}


def test_a_drain_commits_everything_before_it_and_moves_the_cut() -> None:
    order = Reorder(SETTINGS)
    op = allreduce(9, 10, op_seq=9)
    batch = ops(open_marker(op, 1), allreduce(2, 30), allreduce(3, 20), drain(4, 31))
    assert starts_ms(order.push(batch)) == [20, 30]
    assert starts_ms(order.push(ops(allreduce(5, 25), allreduce(6, 35)))) == []
    assert order.tally["order_late"] == 1
    assert starts_ms(order.drain()) == [35]
    assert flow(order) == (6, 6)


@pytest.mark.parametrize(
    "corrupt",
    [
        {"start_ns": 0},
        {"start_ns": -5},
        {"flags": OpFlag.FUTURE_START, "start_ns": 1 << 61, "enqueue_ns": 0, "end_ns": 0},
        {"start_ns": 1 << 61, "enqueue_ns": 0},
        {"start_ns": 1 << 61, "end_ns": 0},
    ],
)
def test_an_absurd_stamp_is_bad_and_makes_nothing_late(corrupt: dict[str, int]) -> None:
    wrong = allreduce(2, 20)
    for name, value in corrupt.items():
        wrong[name] = value
    order = Reorder(SETTINGS)
    order.push(ops(allreduce(1, 10), wrong, allreduce(3, 30)))
    assert order.tally["order_bad"] == 1
    assert starts_ms(order.drain()) == [10, 30]
    assert order.tally["order_late"] == 0


def test_markers_of_all_kinds_are_consumed_and_counted() -> None:
    notes = [record(seq=2, kind=kind, start_ns=MS) for kind in (RecordKind.NET, RecordKind.NOTICE)]
    order = Reorder(SETTINGS)
    order.push(ops(allreduce(1, 10), *notes, record(seq=4)))
    assert order.tally["order_markers"] == 3
    assert flow(order) == (4, 4)


def test_a_network_summary_neither_holds_nor_releases_nor_counts_as_late() -> None:
    """Its fields stand where an op's do: ``state`` of the op, and a start long past."""
    waiting = allreduce(0, 10, op_seq=7)
    order = Reorder(SETTINGS)
    order.push(ops(open_marker(waiting, 1), net_summary(open_marker(waiting, 2), 2)))
    assert order.n_holds == 1
    order.push(ops(allreduce(3, 5000), net_summary(waiting, 4), notice(5, 10, n_stale_events=7)))
    assert order.n_holds == 1
    held_by_nobody = open_marker(allreduce(0, 5000, op_seq=9), 6)
    order.push(net_summary(held_by_nobody, 6))
    assert order.n_holds == 1
    assert (order.tally["order_late"], order.tally["order_bad"]) == (0, 0)


@pytest.mark.parametrize(
    ("reason", "n_changes"),
    [(NoticeReason.CONTROL, 1), (NoticeReason.OVERHEAD_GUARD, 1), (NoticeReason.COUNTERS, 0)],
)
def test_counters_change_nothing(reason: NoticeReason, n_changes: int) -> None:
    order = Reorder(SETTINGS)
    order.push(ops(allreduce(1, 10), notice(2, 15, reason), allreduce(3, 20)))
    assert order.losses.take(0, 1 << 62, 1 << 62) == (0, 0, n_changes)


def test_a_start_that_is_learnt_late_lies_before_the_one_of_the_marker() -> None:
    """The marker has the callback that told of the kernel, the end its own earlier stamp."""
    marked = allreduce(0, 52, op_seq=9, enqueue_ns=31 * MS)
    ended = allreduce(4, 38, ms=900, op_seq=9, enqueue_ns=31 * MS)
    order = Reorder(SETTINGS)
    rows = (allreduce(2, 500, op_seq=1), allreduce(3, 900, op_seq=2))
    emitted = order.push(ops(open_marker(marked, 1), *rows, ended))
    assert order.tally["order_late"] == 0
    assert starts_ms(ops(emitted, order.drain())) == [38, 500, 900]


def test_gaps_of_the_arrival_numbers_are_counted_and_placed() -> None:
    order = Reorder(SETTINGS)
    order.push(ops(allreduce(3, 10), allreduce(4, 20), allreduce(8, 30), allreduce(9, 40)))
    assert order.tally["seq_gaps"] == 2 + 3
    assert order.losses.take(0, 15 * MS, 1 << 62) == (0, 2, 0)
    assert order.losses.take(15 * MS, 25 * MS, 1 << 62) == (0, 3, 0)
    assert order.losses.take(25 * MS, 35 * MS, 1 << 62) == (0, 3, 0)  # it may belong to either
    assert order.losses.take(35 * MS, 1 << 62, 1 << 62) == (0, 0, 0)


@pytest.mark.parametrize("chunk", [1, 2, 9])
def test_a_gap_reaches_from_its_neighbours_to_the_watermark(chunk: int) -> None:
    batch = ops(allreduce(1, 30), allreduce(2, 10), allreduce(4, 20))
    order = Reorder(SETTINGS)
    for first in range(0, len(batch), chunk):
        order.push(batch[first : first + chunk])
    (loss,) = order.losses.snapshot()
    assert (loss.low_ns, loss.high_ns, loss.n_lost) == (10 * MS, 30 * MS, 1)


def test_a_loss_that_was_not_decidable_yet_waits_for_a_later_window() -> None:
    order = Reorder(SETTINGS)
    order.push(stream(10, 200, 50))  # 50 is late: the cut stood at 100 when it came
    assert order.losses.take(0, 300 * MS, final_ns=99 * MS) == (0, 0, 0)
    assert order.losses.take(0, 300 * MS, final_ns=100 * MS) == (1, 0, 0)


def test_nothing_in_nothing_out() -> None:
    order = Reorder()
    assert len(order.push(ops())) == len(order.drain()) == 0
    assert order.push(drain(1, 1)).tolist() == []
    assert order.snapshot().watermark_ns == NEVER_NS


def test_drop_frees_and_counts() -> None:
    order = Reorder(SETTINGS)
    order.push(stream(10, 20, 30))
    order.drop()
    order.refuse(4)
    assert order.n_pending == 0
    assert order.tally["order_dropped"] == 7
    assert flow(order) == (7, 7)


def disordered(seed: int, jitter_ms: int, lost: float, bad: float) -> np.ndarray:
    """600 ops 1 ms apart whose starts are off by up to a jitter; some lost, some impossible, one
    hold and one drain now and then."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(allreduce(1, 1.0), 600)
    rows["seq"] = np.arange(1, 601)
    rows["op_seq"] = rows["seq"]
    rows["start_ns"] = (1000 + rows["seq"] + rng.integers(-jitter_ms, 1, 600)) * MS
    rows["enqueue_ns"] = 0
    rows["end_ns"] = rows["start_ns"] + MS
    rows["start_ns"][rng.random(600) < bad] = 0
    if seed % 3 == 0:
        rows["state"][300] = OpState.OPEN
        rows["kind"][450] = RecordKind.DRAIN
    return rows[rng.random(600) >= lost]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("jitter_ms", [0, 90, 103, 130])
@pytest.mark.parametrize("lost", [0.0, 0.01])
@pytest.mark.parametrize("chunk", [7, 64, 600])
def test_a_glance_at_blocks_of_records_decides_as_a_look_at_each_does(
    seed: int, jitter_ms: int, lost: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = disordered(seed, jitter_ms, lost, bad=0.02 * (seed % 2))
    orders = Reorder(SETTINGS), Reorder(SETTINGS)
    n_plain = 0
    for first in range(0, len(rows), chunk):
        part = rows[first : first + chunk]
        quick = orders[0].push(part)
        with monkeypatch.context() as patch:
            patch.setattr(Reorder, "_is_plain", lambda *_: False)
            slow = orders[1].push(part)
        n_plain += len(quick)
        assert quick.tobytes() == slow.tobytes()
        assert orders[0].snapshot() == orders[1].snapshot()
    assert n_plain > 0


def test_the_glance_is_enough_for_ops_that_are_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> np.ndarray:
        pytest.fail("looked at each record")

    monkeypatch.setattr(Reorder, "_kept", refused)
    order = Reorder(SETTINGS)
    rows = disordered(1, 20, 0.0, bad=0.02)
    found = [order.push(rows[first : first + 64]) for first in range(0, 600, 64)] + [order.drain()]
    assert (np.diff(np.concatenate(found)["start_ns"]) >= 0).all()
    assert flow(order) == (600, 600)
