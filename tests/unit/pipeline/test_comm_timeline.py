"""The contract of article 004: its names, its numbers, milliseconds at this door."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.ops import Op
from comminsight.pipeline.comm_timeline import CommEvent, CommTimeline
from tests.builders.activities import comm, compute


def article() -> CommTimeline:
    timeline = CommTimeline()
    timeline.add_compute("forward", 0.0, 2.0)
    timeline.add_comm("all_reduce", 1.0, 2.5, 128 << 10)
    timeline.add_comm("broadcast", 2.6, 3.0, 64 << 10)
    timeline.add_compute("backward", 3.0, 5.0)
    timeline.add_comm("reduce_scatter", 3.5, 4.3, 96 << 10)
    timeline.add_comm("all_reduce", 4.5, 5.5, 32 << 10)
    return timeline


def test_the_numbers_of_the_article() -> None:
    summary = article().summarize()
    assert summary["num_comm_events"] == 4
    assert summary["total_comm_time"] == pytest.approx(3.7)
    assert summary["overlap_time"] == pytest.approx(2.3)
    assert summary["exposed_comm_time"] == pytest.approx(1.4)
    assert summary["overlap_ratio"] == pytest.approx(2.3 / 3.7)
    assert summary["by_op"]["all_reduce"]["count"] == 2
    assert summary["by_op"]["all_reduce"]["bytes"] == 160 << 10
    hotspot = article().find_priority_hotspot(summary)
    assert hotspot == {
        "op": "all_reduce", "exposed_time": pytest.approx(1.0), "bytes": 160 << 10,
    }  # fmt: skip


def test_what_the_next_article_takes() -> None:
    exported = {
        one["collective"]: one for one in CommTimeline.export_hotspot_events(article().summarize())
    }
    assert exported["all_reduce"] == {
        "collective": "all_reduce", "sync_count": 2, "total_comm_ms": pytest.approx(2.5),
        "exposed_comm_ms": pytest.approx(1.0), "payload_bytes": 160 << 10,
        "overlap_ratio": pytest.approx(0.6), "rank_imbalance_ratio": None,
        "rank_imbalance_observed": False,
    }  # fmt: skip


def test_two_ranks_make_imbalance_measurable() -> None:
    timeline = CommTimeline()
    timeline.add_comm("all_reduce", 0.0, 1.0, 8, rank=0)
    timeline.add_comm("all_reduce", 0.0, 3.0, 8, rank=1)
    (one,) = timeline.export_hotspot_events(timeline.summarize())
    assert one["rank_imbalance_observed"] is True
    assert one["rank_imbalance_ratio"] == pytest.approx(0.5)  # 3 against the median of 1 and 3


@pytest.mark.parametrize(
    ("sync_count", "expected"), [(1, 0.2), (3, 0.6), (0, 0.0)],
)  # fmt: skip
def test_cost(sync_count: int, expected: float) -> None:
    found = CommTimeline.estimate_collective_time(100, 0.1, 1000.0, sync_count)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong",
    [(100, 0.1, 0.0), (100, 0.1, -1.0), (-1, 0.1, 1.0), (1, -0.1, 1.0), (1, 0.1, 1.0, -1),
     (1, 0.1, float("nan")), (1, 0.1, float("inf"))],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        CommTimeline.estimate_collective_time(*wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "hidden"),
    [(1.0, 5.0, 3.0), (4.0, 5.0, 0.0), (2.0, 3.0, 1.0), (5.0, 5.0, 0.0), (3.0, 1.0, 0.0)],
)
def test_compute_that_overlaps_itself_hides_once(start: float, end: float, hidden: float) -> None:
    timeline = CommTimeline()
    timeline.add_compute("forward", 0.0, 3.0)
    timeline.add_compute("backward", 2.0, 4.0)
    assert timeline._overlap_duration(start, end) == hidden


def test_order_touching_intervals_and_ranks_of_their_own() -> None:
    timeline = CommTimeline()
    timeline.add_compute("forward", 0.0, 1.0)
    timeline.add_comm("b", 1.0, 2.0, 1)
    timeline.add_comm("a", 1.0, 2.0, 1)
    timeline.add_comm("c", 0.5, 0.8, 1, rank=1, stream=7, sync="event 4")
    timeline.add_comm("d", 0.9, 1.5, 1)
    told = [(one["op"], one["overlap"], one["rank"], one["sync"]) for one in timeline.timeline()]
    assert told == [
        ("c", False, 1, "event 4"), ("d", True, 0, ""), ("a", False, 0, ""), ("b", False, 0, ""),
    ]  # fmt: skip
    assert CommEvent("x", 2.0, 1.0, 0).duration == 0.0


def test_without_communication_there_is_no_hotspot() -> None:
    timeline = CommTimeline()
    timeline.add_compute("forward", 0.0, 1.0)
    assert timeline.summarize()["overlap_ratio"] == 0.0
    with pytest.raises(InputError, match="no communication"):
        timeline.find_priority_hotspot(timeline.summarize())


def test_exposed_and_hidden_add_up_whatever_the_intervals() -> None:
    rng = random.Random(5)
    for _ in range(200):
        timeline = CommTimeline()
        for _ in range(rng.randint(0, 6)):
            start = rng.randint(0, 40)
            timeline.add_compute("c", start, start + rng.randint(0, 12), rank=rng.randint(0, 1))
        for _ in range(rng.randint(1, 6)):
            start = rng.randint(0, 40)
            timeline.add_comm("a", start, start + rng.randint(0, 12), 1, rank=rng.randint(0, 1))
        summary = timeline.summarize()
        hidden = 0
        for one in timeline.events:
            own = [c for c in timeline.compute_events if c["rank"] == one.rank]
            grid = range(int(one.start), int(one.end))
            hidden += sum(any(c["start"] <= at < c["end"] for c in own) for at in grid)
        assert summary["overlap_time"] == hidden
        total = summary["overlap_time"] + summary["exposed_comm_time"]
        assert total == pytest.approx(summary["total_comm_time"])


def test_a_trace_as_timeline() -> None:
    activities = [compute(0, 0, 300), comm(0, Op.ALL_REDUCE, 200, 200, size_bytes=4096)]
    timeline = CommTimeline.of_activities(activities)
    (one,) = timeline.timeline()
    assert (one["op"], one["bytes"], one["overlap"]) == ("all_reduce", 4096, True)
    summary = timeline.summarize()
    assert summary["overlap_time"] == summary["exposed_comm_time"]


def test_a_wait_right_before_a_collective_is_its_sync_point() -> None:
    def wait(rank: int, begin: float, stream: int) -> Activity:
        made = comm(rank, Op.UNKNOWN, begin, 5, stream=stream, name="cudaStreamWaitEvent")
        return replace(made, kind=ActivityKind.WAIT)

    timeline = CommTimeline.of_activities([
        wait(0, 0, 1), comm(0, Op.ALL_REDUCE, 5, 10), comm(0, Op.ALL_GATHER, 20, 10),
        comm(0, Op.BROADCAST, 30, 10, stream=2), wait(1, 40, 1),
    ])  # fmt: skip
    assert [(one["op"], one["sync"]) for one in timeline.timeline()] == [
        ("all_reduce", "cudaStreamWaitEvent"), ("all_gather", ""), ("broadcast", ""),
    ]  # fmt: skip
