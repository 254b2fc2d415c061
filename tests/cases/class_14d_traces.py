"""Class 14, profiler traces: names, waits, launches and groups as files, and files that are odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause
from tests.builders.activities import T0
from tests.builders.kineto import (
    COALESCED,
    OLD_TORCH,
    ROCM,
    TEXTUAL,
    TORCH,
    Style,
    launch_trace,
    rank_trace,
    write_trace,
    write_traces,
)
from tests.cases.class_14_data import (
    arrival_or_transfer,
    kernels_nobody_saw,
    lockstep,
    names_of_kernels,
    waits_that_hide_nothing,
)
from tests.cases.field_case import SILENT, Expected, FieldCase, Scene

STYLES = {
    "torch": TORCH, "old torch": OLD_TORCH, "rocm": ROCM, "textual": TEXTUAL,
    "coalesced": COALESCED,
    "no groups": Style(call_on="nowhere"),
}  # fmt: skip
ALSO = (Cause.EXPOSED_COMM, Cause.NO_OVERLAP_BY_DEPENDENCY)


def written(folder: Path, job: JobEvidence, style: Style) -> Path:
    """The job's traces in files, one for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    if job.launches:
        for count in job.launches:
            place = folder / f"rank_{count.global_rank}.json"
            write_trace(place, launch_trace(count, job.world_size, T0))
        return folder
    return write_traces(folder, job.activities, job.world_size, style)


def also_as_files(build: Callable[..., Scene]) -> Callable[..., Scene]:
    """The scene as it is, or with its traces in files of some ``style``."""

    def built(folder: Path, *, style: str = "", **variant: Any) -> Scene:
        scene = build(folder, **variant)
        if not style:
            return scene
        evidence, twin = scene.evidence, scene.twin
        assert isinstance(evidence, JobEvidence)
        assert isinstance(twin, JobEvidence)
        return Scene(
            written(folder / "fault", evidence, STYLES[style]), scene.expected,
            written(folder / "twin", twin, STYLES[style]), scene.twin_expected,
        )  # fmt: skip

    return built


def odd_files(
    folder: Path, *, n_ranks: int, late_rank: int, odd_rank: int, damage: str, style: str
) -> Scene:
    """One rank's file is odd and a rank comes late: told from the others, and a file that does
    not read is named. In the twin no file tells its rank, and nobody is named."""
    late = {(late_rank, n): 500.0 for n in range(12)}
    activities = lockstep(n_ranks, 12, op_us=40, work_us=900, late=late)
    write_traces(folder / "fault", activities, n_ranks, STYLES[style])
    suffix = STYLES[style].suffix
    whole = rank_trace(odd_rank, n_ranks, activities, STYLES[style])
    place = folder / "fault" / f"job_rank{odd_rank}{suffix}"
    DAMAGES[damage](place, whole)
    is_named = damage in {"only metadata", "truncated", "two roots"}
    told = ("evidence.arrivals",) + (("missing.file",) if is_named else ())
    for rank in range(n_ranks):
        document = rank_trace(rank, n_ranks, activities, STYLES[style])
        del document["distributedInfo"]
        write_trace(folder / "twin" / f"host_{7000 + rank}.pt.trace{suffix}", document)
    return Scene(
        folder / "fault",
        Expected((Cause.COMPUTE_STRAGGLER,), (late_rank,), ALSO, told),
        folder / "twin",
    )


def only_metadata(place: Path, document: dict[str, Any]) -> None:
    events = [one for one in document["traceEvents"] if one["ph"] == "M"]
    write_trace(place, {**document, "traceEvents": events})


def no_header(place: Path, document: dict[str, Any]) -> None:
    write_trace(place, {key: one for key, one in document.items() if key != "distributedInfo"})


def truncated(place: Path, document: dict[str, Any]) -> None:
    data = write_trace(place, document).read_bytes()
    place.write_bytes(data[: len(data) * 2 // 3])


def two_roots(place: Path, document: dict[str, Any]) -> None:
    place.write_text(json.dumps(document) * 2)


def huge_numbers(place: Path, document: dict[str, Any]) -> None:
    for one in document["traceEvents"]:
        if "correlation" in one["args"]:
            one["args"]["correlation"] += 10**60
            one["args"]["grid"] = [10**400, 1, 1]
    write_trace(place, document)


def as_text(place: Path, document: dict[str, Any]) -> None:
    for one in document["traceEvents"]:
        one["ts"] = str(one["ts"])
    write_trace(place, document)


def missing_file(place: Path, _: dict[str, Any]) -> None:
    place.unlink()


DAMAGES: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "only metadata": only_metadata, "no header": no_header, "truncated": truncated,
    "two roots": two_roots, "huge numbers": huge_numbers, "stamps as text": as_text,
    "missing file": missing_file,
}  # fmt: skip


def other_vendors(folder: Path, *, n_ranks: int, late_rank: int, style: str, name: str) -> Scene:
    """Numbers of events that differ per rank, stream 0, other launches and kernels: ops are matched
    all the same. In the twin all ranks are merged into one file, which no rank can be told from."""
    late = {(late_rank, n): 500.0 for n in range(12)}
    activities = [
        replace(one, name=name if one.op else "void at::native::gemm<float>()")
        for one in lockstep(n_ranks, 12, op_us=40, work_us=900, late=late)
    ]
    write_traces(folder / "fault", activities, n_ranks, STYLES[style])
    merged = rank_trace(0, n_ranks, activities, STYLES[style])
    for rank in range(1, n_ranks):
        own = rank_trace(rank, n_ranks, activities, STYLES[style])
        merged["traceEvents"] += own["traceEvents"]
    write_trace(folder / "twin" / f"merged_rank0{STYLES[style].suffix}", merged)
    return Scene(
        folder / "fault",
        Expected((Cause.COMPUTE_STRAGGLER,), (late_rank,), ALSO, ("evidence.arrivals",)),
        folder / "twin",
        SILENT,
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        119,
        "kernels under other names",
        also_as_files(names_of_kernels),
        tuple(
            {"n_ranks": n, "name": name, "style": style}
            for n, name, style in (
                (2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", ""),
                (4, "nccldevkernel_allgather", ""), (8, "nccl:all_reduce", ""),
                (2, "rcclGenericKernel", ""),
                (2, "void deep_ep::intranode::dispatch<8>()", ""),
                (4, "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096>)",
                 "torch"),
                (2, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "old torch"),
                (8, "nccldevkernel_allreduce", "rocm"), (2, "nccl:all_reduce", "textual"),
            )
        ),
    ),
    FieldCase(
        120,
        "a synchronisation hides nothing",
        also_as_files(waits_that_hide_nothing),
        tuple(
            {"n_ranks": n, "name": name, "comm_us": c, "style": style}
            for n, name, c, style in (
                (2, "Stream Sync", 900.0, ""), (4, "cudaDeviceSynchronize", 500.0, ""),
                (8, "Event Wait", 2000.0, ""), (2, "unnamed_marker", 700.0, ""),
                (2, "Stream Sync", 900.0, "torch"), (4, "Event Sync", 700.0, "rocm"),
                (2, "## forward ##", 1500.0, "old torch"),
            )
        ),
    ),
    FieldCase(
        121, "files that are odd", odd_files,
        tuple(
            {"n_ranks": n, "late_rank": r, "odd_rank": o, "damage": damage, "style": style}
            for n, r, o, damage, style in (
                (4, 1, 3, "only metadata", "torch"), (3, 2, 0, "no header", "torch"),
                (8, 0, 5, "truncated", "rocm"), (4, 3, 1, "two roots", "torch"),
                (4, 0, 0, "huge numbers", "torch"), (3, 1, 1, "stamps as text", "old torch"),
                (5, 4, 2, "missing file", "coalesced"),
            )
        ),
    ),
    FieldCase(
        122, "traces of other vendors, merged ones", other_vendors,
        tuple(
            {"n_ranks": n, "late_rank": r, "style": style, "name": name}
            for n, r, style, name in (
                (2, 1, "rocm", "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"),
                (4, 0, "textual", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()"),
                (8, 5, "torch", "rcclGenericKernel"), (3, 2, "old torch", "ncclKernel_AllReduce_X"),
            )
        ),
    ),
    FieldCase(
        124,
        "kernels that nobody saw",
        also_as_files(kernels_nobody_saw),
        tuple(
            {"n_ranks": n, "n_launches": k, "n_lost": m, "style": style}
            for n, k, m, style in (
                (2, 50, 3, ""), (8, 100_000, 1, ""), (4, 10, 10, ""),
                (2, 50, 3, "torch"), (4, 10, 10, "torch"), (3, 900, 1, "torch"),
            )
        ),
    ),
    FieldCase(
        125,
        "collectives that name no group",
        also_as_files(arrival_or_transfer),
        tuple(
            {"n_ranks": n, "late_rank": r, "op_us": o, "late_us": s, "label": label, "style": style}
            for n, r, o, s, label, style in (
                (4, 1, 60, 420, "", ""), (8, 0, 20, 200, "", ""), (2, 1, 300, 900, "", ""),
                (4, 1, 60, 420, "", "no groups"), (2, 1, 300, 900, "", "rocm"),
                (4, 2, 50, 500, "tp", "coalesced"),
            )
        ),
    ),
)  # fmt: skip
