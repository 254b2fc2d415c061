"""A timeline of compute and communication in milliseconds, by the names of article 004.

The names and results are those of the article's class, so that its exercises run on this product;
what they mean is measured by ``analysis.exposure``. Times at this door are milliseconds, sizes are
bytes; inside they are whole nanoseconds, so that nothing finer than one is told.

timeline = CommTimeline()
timeline.add_compute("forward", 0.0, 2.0)
timeline.add_comm("all_reduce", 1.0, 2.5, 128 * 1024)
timeline.find_priority_hotspot(timeline.summarize())
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comminsight.analysis.exposure import imbalance_ratio
from comminsight.analysis.intervals import EMPTY, common, length_ns, united
from comminsight.diagnosis.chain import op_name
from comminsight.errors import InputError
from comminsight.model.activity import Activity, ActivityKind

NS_PER_MS = 1_000_000
NEXT_STEP = "add the communication of the trace first, with add_comm"


@dataclass
class CommEvent:
    """One collective. ``sync`` names what it waits for (an event, a stream, a barrier), "" where
    the source does not tell."""

    op: str
    start: float
    end: float
    bytes: int
    overlap_with_compute: bool = False
    rank: int = 0
    stream: int = 0
    sync: str = ""

    @property
    def duration(self) -> float:
        """Milliseconds; 0 for one that ends before it begins."""
        return max(self.end - self.start, 0.0)


class CommTimeline:
    """Compute and communication of one or several ranks. Compute of one rank hides nothing of
    another."""

    def __init__(self) -> None:
        self.events: list[CommEvent] = []
        self.compute_events: list[dict[str, Any]] = []
        self._compute: dict[int, np.ndarray] = {}

    @staticmethod
    def of_activities(activities: Iterable[Activity]) -> CommTimeline:
        """The timeline of a trace; times count from its first activity. ``sync`` of a collective is
        the wait that stands right before it on its stream."""
        made = CommTimeline()
        every = [one for one in activities if one.end_ns > one.start_ns]
        begin_ns = min((one.start_ns for one in every), default=0)
        before = _before_on_stream(every)
        for one, earlier in zip(every, before, strict=True):
            start, end = (ns - begin_ns for ns in (one.start_ns, one.end_ns))
            span = start / NS_PER_MS, end / NS_PER_MS
            if one.kind is ActivityKind.COMPUTE:
                made.add_compute(one.name, *span, rank=one.global_rank, stream=one.stream)
            elif one.kind is ActivityKind.COMMUNICATION:
                is_synced = earlier is not None and earlier.kind is ActivityKind.WAIT
                made.add_comm(
                    op_name(one.op), *span, one.size_bytes, rank=one.global_rank,
                    stream=one.stream, sync=earlier.name if earlier and is_synced else "",
                )  # fmt: skip
        return made

    @staticmethod
    def estimate_collective_time(
        payload_bytes: int,
        startup_latency: float,
        bandwidth_bytes_per_s: float,
        sync_count: int = 1,
    ) -> float:
        """``sync_count`` times startup plus bytes over bandwidth, in the unit of the startup, which
        the bandwidth has to share (article 004, step 1).

        Raises ValueError for negative values and a bandwidth that is not positive.
        """
        least = min(payload_bytes, startup_latency, sync_count)
        if not (least >= 0 and bandwidth_bytes_per_s > 0 and math.isfinite(bandwidth_bytes_per_s)):
            raise ValueError("sizes, latency and counts are at least 0, the bandwidth above 0")
        return sync_count * (startup_latency + payload_bytes / bandwidth_bytes_per_s)

    def add_compute(
        self, name: str, start: float, end: float, *, rank: int = 0, stream: int = 0
    ) -> None:
        """Takes an interval of compute; ``name`` explains it."""
        self.compute_events.append(
            {"name": name, "start": start, "end": end, "rank": rank, "stream": stream}
        )
        self._compute.pop(rank, None)

    def add_comm(
        self,
        op: str,
        start: float,
        end: float,
        bytes: int,
        *,
        rank: int = 0,
        stream: int = 0,
        sync: str = "",
    ) -> None:
        """Takes one collective."""
        event = CommEvent(op, start, end, bytes, rank=rank, stream=stream, sync=sync)
        event.overlap_with_compute = self._overlap_duration(start, end, rank=rank) > 0
        self.events.append(event)

    def _overlap_duration(self, start: float, end: float, *, rank: int = 0) -> float:
        """Milliseconds of the interval that compute of the rank covers, each instant once."""
        found = common(united(np.array([[_ns(start), _ns(end)]], np.int64)), self._covered(rank))
        return length_ns(found) / NS_PER_MS

    def _covered(self, rank: int) -> np.ndarray:
        if rank not in self._compute:
            rows = [
                (_ns(one["start"]), _ns(one["end"]))
                for one in self.compute_events
                if one["rank"] == rank
            ]
            self._compute[rank] = united(np.array(rows, np.int64)) if rows else EMPTY
        return self._compute[rank]

    def summarize(self) -> dict[str, Any]:
        """Totals, and by op: count, time, bytes, exposed time. Two collectives at one time have
        their time each. ``overlap_ratio`` is 0 without communication, as in the article."""
        by_op: dict[str, dict[str, Any]] = {}
        overlap = 0.0
        for event in self.events:
            hidden = self._overlap_duration(event.start, event.end, rank=event.rank)
            overlap += hidden
            item = by_op.setdefault(
                event.op, {"count": 0, "time": 0.0, "bytes": 0, "exposed_time": 0.0, "by_rank": {}}
            )
            exposed = event.duration - hidden
            item["count"] += 1
            item["time"] += event.duration
            item["bytes"] += event.bytes
            item["exposed_time"] += exposed
            item["by_rank"][event.rank] = item["by_rank"].get(event.rank, 0.0) + exposed
        total = sum(event.duration for event in self.events)
        return {
            "num_comm_events": len(self.events),
            "total_comm_time": total,
            "overlap_time": overlap,
            "overlap_ratio": overlap / total if total else 0.0,
            "exposed_comm_time": max(total - overlap, 0.0),
            "by_op": by_op,
        }

    def find_priority_hotspot(self, summary: dict[str, Any]) -> dict[str, Any]:
        """The op with the most exposed time, by name where two have as much.

        Raises InputError where there is no communication.
        """
        if not summary["by_op"]:
            raise InputError("no communication in the timeline", next_step=NEXT_STEP)
        op, item = min(
            summary["by_op"].items(), key=lambda pair: (-pair[1]["exposed_time"], pair[0])
        )
        return {"op": op, "exposed_time": item["exposed_time"], "bytes": item["bytes"]}

    @staticmethod
    def export_hotspot_events(summary: dict[str, Any]) -> list[dict[str, Any]]:
        """One record for each op. ``rank_imbalance_ratio`` is None until two ranks were seen: how
        much more exposed time the worst rank has than the median one."""
        return [_exported(op, item) for op, item in summary["by_op"].items()]

    def timeline(self) -> list[dict[str, Any]]:
        """All collectives by start, end and op, with whether any compute hides some of each."""
        for one in self.events:
            hidden = self._overlap_duration(one.start, one.end, rank=one.rank)
            one.overlap_with_compute = hidden > 0
        return [
            {
                "op": one.op, "start": one.start, "end": one.end, "duration": one.duration,
                "bytes": one.bytes, "overlap": one.overlap_with_compute, "rank": one.rank,
                "stream": one.stream, "sync": one.sync,
            }
            for one in sorted(self.events, key=lambda one: (one.start, one.end, one.op))
        ]  # fmt: skip


def _before_on_stream(every: Sequence[Activity]) -> list[Activity | None]:
    """For each activity the one that begins before it on its stream, if any."""
    found: list[Activity | None] = [None] * len(every)
    last: dict[tuple[int, int], Activity] = {}
    for row in sorted(range(len(every)), key=lambda row: every[row].start_ns):
        place = every[row].global_rank, every[row].stream
        found[row] = last.get(place)
        last[place] = every[row]
    return found


def _ns(time_ms: float) -> int:
    return round(time_ms * NS_PER_MS)


def _exported(op: str, item: dict[str, Any]) -> dict[str, Any]:
    total, exposed = float(item["time"]), float(item["exposed_time"])
    ratio = imbalance_ratio(item["by_rank"].values())
    return {
        "collective": op,
        "sync_count": int(item["count"]),
        "total_comm_ms": total,
        "exposed_comm_ms": exposed,
        "payload_bytes": int(item["bytes"]),
        "overlap_ratio": max(total - exposed, 0.0) / total if total else 0.0,
        "rank_imbalance_ratio": ratio,
        "rank_imbalance_observed": ratio is not None,
    }
