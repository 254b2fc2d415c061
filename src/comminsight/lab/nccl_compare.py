"""What an NCCL job wrote down against what the plugin recorded of it; no torch, no files."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from comminsight.model.ops import Op, OpState, TimingSource
from comminsight.model.records import is_ended_op

MULTI_RANK = (2, 30, 3)  # the first NCCL that takes several ranks on one GPU
MAX_RANKS = 8
# CUDA events have a resolution of half a microsecond, and cost a little themselves
SLACK_NS = 20_000
SLACK_RATIO = 1.10
MAX_FAULTS = 20
CHANNEL_COUNTS = ("n_channels", "channels_started", "channels_stopped")


@dataclass(frozen=True, slots=True)
class Plan:
    """How the job is laid out, and what this machine leaves untested."""

    n_ranks: int
    environment: dict[str, str] = field(default_factory=dict)
    untested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One entry of a rank's log; ``event_ns`` is for the whole call, of one or more ops."""

    name: str
    ops: tuple[str, ...]
    size_bytes: int
    event_ns: int
    is_warm: bool


def plan(n_gpus: int, nccl: Sequence[int]) -> Plan:
    """One rank for each GPU; on one GPU two ranks where this NCCL can, else one."""
    nodes = "one node: no network, so no proxy events"
    if n_gpus >= 2:
        return Plan(min(n_gpus, MAX_RANKS), untested=(nodes,))
    shared = "ranks share one GPU: no NVLink, and times that say nothing about several GPUs"
    if tuple(nccl) >= MULTI_RANK:
        given = {
            "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0",
            "NCCL_NET_GDR_LEVEL": "LOC",
        }  # fmt: skip
        if tuple(nccl) == MULTI_RANK:
            given["NCCL_CUMEM_ENABLE"] = "0"
        return Plan(2, given, (nodes, shared))
    alone = "one rank: NCCL shows a plugin no op of such a communicator, only loading was tested"
    return Plan(1, untested=(nodes, alone))


def call_from(entry: Mapping[str, object]) -> Call:
    """A log line that was parsed as JSON.

    Raises KeyError, TypeError or ValueError when it is none.
    """
    ops = entry["ops"]
    if not isinstance(ops, list):
        raise TypeError(f"ops is {type(ops).__name__}")
    return Call(
        str(entry["call"]),
        tuple(map(str, ops)),
        int(str(entry["size_bytes"])),
        int(str(entry["event_ns"])),
        bool(entry["is_warm"]),
    )


def ended_in_order(records: np.ndarray) -> np.ndarray:
    """The ends of ops (``OP_DTYPE``) in the order in which they were called."""
    ended = records[is_ended_op(records)]
    order = np.lexsort((ended["op_seq"], ended["enqueue_ns"]))
    rows: np.ndarray = ended[order]
    return rows


def faults(calls: Sequence[Call], records: np.ndarray) -> list[str]:
    """Where one rank's records are not what it did, in the order of its calls."""
    rows = ended_in_order(records)
    wanted = [(name, call) for call in calls for name in call.ops]
    found = [] if len(rows) == len(wanted) else [f"{len(wanted)} ops, {len(rows)} records"]
    at = 0
    for number, call in enumerate(calls):
        part = rows[at : at + len(call.ops)]
        at += len(call.ops)
        where = f"call {number} ({call.name}, {call.size_bytes} bytes)"
        found += [f"{where}: {text}" for text in call_faults(call, part)]
        if len(found) >= MAX_FAULTS:
            break
    return found[:MAX_FAULTS]


def call_faults(call: Call, rows: np.ndarray) -> Iterable[str]:
    """What is wrong with the records of one call. Ops of a group have no order among themselves."""
    names = sorted(Op(int(code)).name for code in rows["op"])
    if names != sorted(call.ops):
        yield f"recorded as {', '.join(names) or 'nothing'}"
        return
    for row in rows:
        if int(row["size_bytes"]) != call.size_bytes:
            yield f"size {int(row['size_bytes'])}"
        if int(row["state"]) != OpState.DONE:
            yield f"state {OpState(int(row['state'])).name}"
        n, started, stopped = (int(row[name]) for name in CHANNEL_COUNTS)
        if not 0 < n == started == stopped:
            yield f"{n} channels, {started} started, {stopped} stopped"
        yield from timing_faults(call, row)


def timing_faults(call: Call, row: np.void) -> Iterable[str]:
    """Whether the GPU's stamps can be true: a kernel ends within the events around its call."""
    if int(row["timing_source"]) != TimingSource.GPU:
        yield f"timed by {TimingSource(int(row['timing_source'])).name}"
        return
    spent_ns = int(row["gpu_end_ns"]) - int(row["gpu_start_ns"])
    if spent_ns <= 0:
        yield f"kernel time {spent_ns} ns"
    elif len(call.ops) <= 2 and spent_ns > call.event_ns * SLACK_RATIO + SLACK_NS:
        yield f"kernel time {spent_ns} ns, CUDA events {call.event_ns} ns"


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one call at one size, without and with the plugin."""

    name: str
    size_bytes: int
    without_ns: int
    with_ns: int

    @property
    def ratio(self) -> float:
        """Time with the plugin over time without."""
        return self.with_ns / self.without_ns if self.without_ns else float("nan")


def costs(without: Iterable[Call], with_plugin: Iterable[Call]) -> list[Cost]:
    """One row for each call and size that both have, in the order of the job; warm calls only."""
    bare, recorded = _times(without), _times(with_plugin)
    return [
        Cost(*key, round(statistics.median(times)), round(statistics.median(recorded[key])))
        for key, times in bare.items()
        if key in recorded
    ]


def _times(calls: Iterable[Call]) -> dict[tuple[str, int], list[int]]:
    times: dict[tuple[str, int], list[int]] = {}
    for call in calls:
        if call.is_warm:
            times.setdefault((call.name, call.size_bytes), []).append(call.event_ns)
    return times
