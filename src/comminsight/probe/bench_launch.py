"""Measures a plan, one launch for each algorithm, and keeps what was measured, however it ended."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from comminsight.analysis.bench_statistics import bench_row, shape_of
from comminsight.diagnosis.bench_decision import decision, evidence_level
from comminsight.errors import InputError
from comminsight.format import nccl_algorithm, openmpi_algorithm
from comminsight.model.bench import (
    BENCH_SCHEMA_VERSION,
    ITEM_BYTES,
    UNCONFIRMED,
    Artifacts,
    BenchPlan,
    BenchRecord,
    BenchRow,
    Metrics,
    Observed,
)
from comminsight.probe.bench_commands import BINDINGS
from comminsight.probe.bench_refusal import refuse_impossible, refuse_unknown
from comminsight.probe.bench_rounds import Launch, run_in_rounds
from comminsight.probe.bench_turns import TIMES, Timed

Seen = tuple[Observed, ...] | str
READERS: dict[str, Callable[[str], Seen]] = {
    "nccl": nccl_algorithm.observed,
    "mpi": openmpi_algorithm.observed,
}


def measure(plan: BenchPlan, out: Path, *, timeout_s: float) -> list[Path]:
    """Paths of the new records ``LABEL-ALGORITHM-NNN.json``; the log of each lies beside it.

    A launch that fails, or has not ended when KeyboardInterrupt comes, has a record that says so.
    Raises UsageError before anything is launched or written where the plan cannot be done here.
    """
    refuse_unknown(plan)
    refuse_impossible(plan)
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        kept = []
        for one in plan.launches():
            folder = Path(stack.enter_context(_folder()))
            path = _reserved(out, f"{plan.label}-{one.name}")
            kept.append((path, Launch(one, folder, path.with_suffix(".log"), timeout_s=timeout_s)))
        try:
            run_in_rounds([launch for _, launch in kept])
        finally:
            for path, launch in kept:
                _write(path, launch)
    return [path for path, _ in kept]


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="comminsight-bench-")


def _reserved(out: Path, stem: str) -> Path:
    """A name that no record, and no log of a record since removed, has."""
    number = 1
    while True:
        path = out / f"{stem}-{number:03d}.json"
        if not path.with_suffix(".log").exists():
            try:
                path.open("x").close()
            except FileExistsError:
                pass
            else:
                return path
        number += 1


def _write(path: Path, launch: Launch) -> None:
    if launch.plan.backend == "mpi":
        _keep_bindings(launch)
    log = launch.log.read_text(encoding="utf-8", errors="replace") if launch.log.exists() else ""
    seen = READERS[launch.plan.backend](log) if launch.plan.backend in READERS else UNCONFIRMED
    record = _record(launch, seen)
    new = path.with_suffix(".part")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    new.replace(path)


def _keep_bindings(launch: Launch) -> None:
    """Append to the log what the dynamic linker told of the collectives of each rank."""
    with launch.log.open("a", encoding="utf-8") as log:
        for path in sorted(launch.folder.glob(f"{BINDINGS}.*")):
            log.write(f"{openmpi_algorithm.BEGIN}{path.suffix[1:]}\n")
            with path.open(encoding="utf-8", errors="replace") as lines:
                log.writelines(openmpi_algorithm.evidence_lines(lines))


def _record(launch: Launch, seen: Seen) -> BenchRecord:
    plan = launch.plan
    ranks = [_lines(launch.folder / TIMES.format(rank)) for rank in range(plan.n_ranks)]
    n_done = min(max(0, len(lines) - 1) for lines in ranks)
    heads = [msgspec.json.decode(lines[0]) for lines in ranks if lines]
    rows = _rows(plan, [lines[1 : n_done + 1] for lines in ranks]) if n_done else []
    names = dict.fromkeys(row.collective for row in rows)
    shapes = [shape_of([row for row in rows if row.collective == name]) for name in names]
    level = evidence_level(launch.failure, seen, has_rows=bool(rows))
    return BenchRecord(
        workload_id=plan.workload_id, label=plan.label, backend=plan.backend, dtype=plan.dtype,
        world_size=plan.n_ranks, warmup=plan.warmup, repeats=plan.repeats,
        algorithm_requested=plan.algorithms[0], protocol_requested=plan.protocols[0],
        algorithm_observed=seen, environment_profile=_profile(heads),
        evidence_level=level, decision=decision(plan, level, seen), failure=launch.failure,
        rs_ag_equals_all_reduce=_agree(heads),
        artifacts=Artifacts(nccl_log=launch.log.name if launch.log.exists() else ""),
        metrics=Metrics(rows=tuple(rows), shapes=tuple(shapes)),
    )  # fmt: skip


def _lines(path: Path) -> list[bytes]:
    """Whole lines: a rank that was killed may leave a part of its last."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def _rows(plan: BenchPlan, ranks: list[list[bytes]]) -> list[BenchRow]:
    read = [[msgspec.json.decode(line, type=list[Timed]) for line in rank] for rank in ranks]
    return [
        bench_row(
            name, n * ITEM_BYTES[plan.dtype],
            [[repeat[case][0] for repeat in rank] for rank in read],
            [[repeat[case][1] for repeat in rank] for rank in read],
        )
        for case, (name, n) in enumerate(plan.cases())
    ]  # fmt: skip


def _profile(heads: list[dict[str, object]]) -> dict[str, str]:
    """Versions and devices, as the first rank tells them; empty where no rank came so far."""
    if not heads:
        return {}
    machine = {"machine": platform.machine(), "cpus": str(os.cpu_count() or "")}
    return machine | {key: str(value) for key, value in heads[0].items() if key != "agree"}


def _agree(heads: list[dict[str, object]]) -> bool | None:
    said = [head["agree"] for head in heads]
    return all(said) if said and None not in said else None


def read_record(path: Path) -> BenchRecord:
    """A record written before; raises InputError for anything else."""
    next_step = "give a .json that `comminsight bench --run` wrote"
    try:
        data = path.read_bytes()
        record = msgspec.json.decode(data, type=BenchRecord) if data else None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"no record of a benchmark: {error}", path=str(path), next_step=next_step
        ) from error
    if record is None:
        raise InputError("empty: not ended yet, or killed", path=str(path), next_step=next_step)
    if record.schema_version.partition(".")[0] != BENCH_SCHEMA_VERSION.partition(".")[0]:
        what = f"a record of version {record.schema_version}"
        raise InputError(what, path=str(path), next_step=next_step)
    return record
