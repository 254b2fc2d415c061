"""What the devices of a job did, laid out step by step: the traces that a profiler would give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.ops import Op

US, MS = 1_000, 1_000_000
T0 = 1_795_963_064_000_000_000


def compute(rank: int, begin_us: float, for_us: float, **more: Any) -> Activity:
    """A compute kernel; times from the beginning of the trace."""
    return _activity(rank, ActivityKind.COMPUTE, "gemm", begin_us, for_us, more)


def comm(rank: int, op: Op, begin_us: float, for_us: float, **more: Any) -> Activity:
    """A kernel of a collective on a stream of its own."""
    more = {"stream": 1, "comm_label": "world", **more}
    name = more.pop("name", f"nccl:{op.name.lower()}")
    return _activity(rank, ActivityKind.COMMUNICATION, name, begin_us, for_us, {**more, "op": op})


def _activity(
    rank: int, kind: ActivityKind, name: str, begin_us: float, for_us: float, more: dict[str, Any]
) -> Activity:
    begin = T0 + round(begin_us * US)
    return Activity(
        global_rank=rank, kind=kind, name=name, start_ns=begin, end_ns=begin + round(for_us * US),
        **{"step": 0, **more},
    )  # fmt: skip


def on_ranks(
    ranks: Iterable[int],
    activities: Sequence[Activity],
    *,
    clocks_us: dict[int, float] | None = None,
) -> tuple[Activity, ...]:
    """The same activities on every rank; ``clocks_us`` is how far the clock of a rank is ahead."""
    ahead = clocks_us or {}
    return tuple(
        shifted(replace(one, global_rank=rank), ahead.get(rank, 0.0))
        for rank in ranks
        for one in activities
    )


def shifted(one: Activity, by_us: float) -> Activity:
    """The same later."""
    by_ns = round(by_us * US)
    return replace(one, start_ns=one.start_ns + by_ns, end_ns=one.end_ns + by_ns)


def in_steps(activities: Sequence[Activity], n_steps: int, every_us: float) -> list[Activity]:
    """The activities of one step, repeated."""
    return [
        shifted(replace(one, step=step), step * every_us)
        for step in range(n_steps)
        for one in activities
    ]
