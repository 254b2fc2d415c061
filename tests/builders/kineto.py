"""Traces as the PyTorch profiler writes them, from what the devices of a job did."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comminsight.model.activity import Activity, ActivityKind, LaunchCount
from comminsight.model.ops import Op

BASE_NS = 1_795_963_000_000_000_000
CALLS = {Op.ALL_REDUCE: "allreduce", Op.ALL_GATHER: "_allgather_base", Op.BROADCAST: "broadcast"}


@dataclass(frozen=True)
class Style:
    """How a version of the profiler, or the one of another vendor, writes."""

    kernel: str = "kernel"
    runtime: str = "cuda_runtime"
    launch: str = "cudaLaunchKernel"
    stream: int = 0  # added to all
    ids: int = 100  # rank r numbers its events from r * ids on
    has_base: bool = True
    is_text: bool = False  # stamps as strings
    call_on: str = "kernel"  # where a collective is stated: kernel, parent, around, nowhere
    has_header: bool = True
    has_groups: bool = True
    suffix: str = ".json"


TORCH = Style()
OLD_TORCH = Style(kernel="Kernel", runtime="Runtime", has_base=False)
ROCM = Style(launch="hipLaunchKernel", stream=-1, ids=7, suffix=".json.gz")
TEXTUAL = Style(is_text=True, call_on="parent", ids=1000)
COALESCED = Style(call_on="around", launch="cudaLaunchKernelExC")


class TraceBuilder:
    """The events of one rank."""

    def __init__(self, rank: int, world: int, style: Style = TORCH) -> None:
        self.rank, self.world, self.style = rank, world, style
        self.events: list[dict[str, Any]] = []
        self.number = rank * style.ids + 1

    def stamp(self, ns: int) -> Any:
        us = (ns - (BASE_NS if self.style.has_base else 0)) / 1000
        return f"{us:.3f}" if self.style.is_text else us

    def event(
        self, category: str, name: str, start_ns: int, for_ns: int, tid: int = 1, **args: Any
    ) -> dict[str, Any]:
        made = {
            "ph": "X", "cat": category, "name": name, "pid": 4000 + self.rank, "tid": tid,
            "ts": self.stamp(start_ns), "dur": for_ns / 1000, "args": args,
        }  # fmt: skip
        self.events.append(made)
        return made

    def add(self, one: Activity) -> None:
        self.number += 2
        start, length = one.start_ns, one.end_ns - one.start_ns
        is_comm = one.kind is ActivityKind.COMMUNICATION
        stated = _stated(one, self.world) if is_comm and one.comm_label else {}
        call_on = self.style.call_on
        ids = {"correlation": self.number, "External id": self.number + 1_000_000}
        if stated and call_on in {"parent", "around"}:
            other = {**ids, "External id": self.number + (10**6 if call_on == "parent" else 10**7)}
            self.event("cpu_op", "record_param_comms", start - 900, 800, **other, **stated)
        category = _category(one, self.style)
        if category == self.style.kernel:
            runtime, launch = self.style.runtime, self.style.launch
            self.event(runtime, launch, start - 800, 300, **ids)
        on_kernel = stated if call_on == "kernel" else {}
        made = self.event(category, one.name, start, length, one.stream, **ids, **on_kernel)
        made["pid"] = self.rank
        made["args"]["stream"] = one.stream + self.style.stream

    def steps(self, activities: Sequence[Activity]) -> None:
        spans: dict[int, list[int]] = defaultdict(list)
        for one in activities:
            spans[one.step] += [one.start_ns, one.end_ns]
        for step, stamps in spans.items():
            begin = min(stamps) - 1000
            self.event("user_annotation", f"ProfilerStep#{step}", begin, max(stamps) - begin - 1)

    def document(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "schemaVersion": 1, "deviceProperties": [], "displayTimeUnit": "ms",
        }  # fmt: skip
        if self.style.has_header:
            made["distributedInfo"] = {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.world,
            }
            if self.style.has_groups:
                made["distributedInfo"]["pg_config"] = [
                    {"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.world,
                     "ranks": list(range(self.world))}
                ]  # fmt: skip
        if self.style.has_base:
            made["baseTimeNanoseconds"] = BASE_NS
        meta = {
            "ph": "M",
            "name": "process_name",
            "pid": 1,
            "tid": 0,
            "ts": 0,
            "args": {"name": "x"},
        }
        return {**made, "traceEvents": [meta, *self.events]}


def _category(one: Activity, style: Style) -> str:
    return "gpu_user_annotation" if one.kind is ActivityKind.OTHER and not one.op else style.kernel


def _stated(one: Activity, world: int) -> dict[str, Any]:
    n = one.size_bytes // 4
    return {
        "Collective name": CALLS.get(Op(one.op), "allreduce"), "In msg nelems": n,
        "Out msg nelems": n, "dtype": "Float", "Group size": world, "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(world))),
    }  # fmt: skip


def rank_trace(
    rank: int, world: int, activities: Iterable[Activity], style: Style = TORCH
) -> dict[str, Any]:
    """The document of one rank; steps are marked where activities have several."""
    own = [one for one in activities if one.global_rank == rank]
    builder = TraceBuilder(rank, world, style)
    if len({one.step for one in own}) > 1:
        builder.steps(own)
    for one in own:
        builder.add(one)
    return builder.document()


def launch_trace(count: LaunchCount, world: int, start_ns: int) -> dict[str, Any]:
    """Back-to-back kernels, the last a collective; the first ones have only their launch."""
    builder = TraceBuilder(count.global_rank, world)
    lost = count.n_launches - count.n_kernels
    for n in range(count.n_launches):
        is_last = n == count.n_launches - 1
        kind = ActivityKind.COMMUNICATION if is_last else ActivityKind.COMPUTE
        begin = start_ns + n * 100_000
        name, for_ns = ("ncclKernel_X", 1000) if is_last else ("gemm", 99_000)
        rank, end = count.global_rank, begin + for_ns
        builder.add(Activity(global_rank=rank, kind=kind, name=name, start_ns=begin, end_ns=end))
        if n < lost:
            builder.events.pop()
    return builder.document()


def write_trace(place: Path, document: dict[str, Any]) -> Path:
    """The file; compressed where its name says so."""
    data = json.dumps(document).encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.compress(data, 1) if place.suffix == ".gz" else data)
    return place


def write_traces(
    folder: Path, activities: Sequence[Activity], world: int, style: Style = TORCH
) -> Path:
    """One file for each rank, named after it; the folder."""
    for rank in range(world):
        document = rank_trace(rank, world, activities, style)
        write_trace(folder / f"job_rank{rank}{style.suffix}", document)
    return folder
