"""Launches one benchmark for each algorithm and keeps what it measured, however it ended."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from comminsight.analysis.bench_statistics import bench_row, shape_of
from comminsight.errors import InputError, UsageError
from comminsight.format.nccl_algorithm import observed
from comminsight.model.bench import (
    ALGORITHMS,
    BACKENDS,
    BENCH_SCHEMA_VERSION,
    ITEM_BYTES,
    Artifacts,
    BenchPlan,
    BenchRecord,
    BenchRow,
    Decision,
    EvidenceLevel,
    Metrics,
    Observed,
)  # fmt: skip
from comminsight.probe.bench_processes import launched

LABEL = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)


def command(plan_path: str, out: str, n_ranks: int) -> list[str]:
    """The launch of one algorithm."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc_per_node", str(n_ranks), "-m", "comminsight.probe.bench_ranks", plan_path, out,
    ]  # fmt: skip


def environment(base: Mapping[str, str], plan: BenchPlan, algorithm: str) -> dict[str, str]:
    """Variables of one launch; Auto takes NCCL_ALGO away, so that nothing is asked for."""
    kept = {key: value for key, value in base.items() if key not in {"NCCL_ALGO", "NCCL_PROTO"}}
    kept |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING"}
    kept.setdefault("OMP_NUM_THREADS", "1")
    if algorithm != "Auto":
        kept["NCCL_ALGO"] = algorithm
    if plan.protocol:
        kept["NCCL_PROTO"] = plan.protocol
    return kept


def refuse_unknown(plan: BenchPlan) -> None:
    """Raises UsageError for a plan that no launch can do."""
    if not LABEL.fullmatch(plan.label):
        raise UsageError(
            f"the label {plan.label!r} cannot be a part of a file's name",
            next_step="take letters, digits, '_', '-' and '.'",
        )
    for said, name, known in (
        ((plan.backend,), "backend", BACKENDS), ((plan.dtype,), "dtype", tuple(ITEM_BYTES)),
        (plan.algorithms, "algorithm", ALGORITHMS),
    ):  # fmt: skip
        if not said or set(said) - set(known):
            raise UsageError(
                f"{name} {', '.join(said) or 'missing'} is not known",
                next_step=f"take one of {', '.join(known)}",
            )


def refuse_too_few_gpus(plan: BenchPlan) -> None:
    """Raises before anything is launched."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "the ranks need PyTorch, which this Python does not have",
            next_step="install CommInsight into the Python that trains",
        )
    if plan.backend != "nccl":
        return
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    n_gpus = int(asked.stdout.strip() or 0) if asked.returncode == 0 else 0
    if n_gpus < plan.n_ranks:
        raise UsageError(
            f"{plan.n_ranks} ranks need {plan.n_ranks} GPUs, torch sees {n_gpus}",
            next_step="ask for fewer ranks, or take --backend gloo",
        )


def measure(plan: BenchPlan, algorithm: str, out: Path, *, timeout_s: float) -> Path:
    """Path of the new record ``LABEL-ALGORITHM-NNN.json``; its log lies beside it.

    Raises UsageError before anything is launched or written where the plan cannot be done here.
    """
    refuse_unknown(plan)
    refuse_too_few_gpus(plan)
    plan = plan.of_launch(algorithm)
    out.mkdir(parents=True, exist_ok=True)
    record_path = _reserved(out, f"{plan.label}-{algorithm}")
    log_path = record_path.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="comminsight-bench-") as folder:
        plan_path = Path(folder, "plan.json")
        plan_path.write_bytes(msgspec.json.encode(plan))
        failure = launched(
            command(str(plan_path), folder, plan.n_ranks),
            environment(os.environ, plan, algorithm), log_path, timeout_s,
        )  # fmt: skip
        ranks = [_lines(Path(folder, f"rank{rank}.jsonl")) for rank in range(plan.n_ranks)]
    log = log_path.read_text(encoding="utf-8", errors="replace")
    record = _record(plan, algorithm, ranks, observed(log), failure, log_path.name)
    new = record_path.with_suffix(".part")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    new.replace(record_path)
    return record_path


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


def _lines(path: Path) -> list[bytes]:
    """Whole lines: a rank that was killed may leave a part of its last."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def _record(
    plan: BenchPlan, algorithm: str, ranks: list[list[bytes]],
    seen: tuple[Observed, ...] | str, failure: str, log_name: str,
) -> BenchRecord:  # fmt: skip
    n_done = min(max(0, len(lines) - 1) for lines in ranks)
    heads = [msgspec.json.decode(lines[0]) for lines in ranks if lines]
    rows = _rows(plan, [lines[1 : n_done + 1] for lines in ranks]) if n_done else []
    names = dict.fromkeys(row.collective for row in rows)
    shapes = [shape_of([row for row in rows if row.collective == name]) for name in names]
    level = EvidenceLevel.NONE if not rows else _level(failure, seen)
    return BenchRecord(
        workload_id=plan.workload_id, label=plan.label, backend=plan.backend, dtype=plan.dtype,
        world_size=plan.n_ranks, warmup=plan.warmup, repeats=plan.repeats,
        algorithm_requested=algorithm, algorithm_observed=seen, environment_profile=_profile(heads),
        evidence_level=level, decision=_decision(level, algorithm, seen), failure=failure,
        rs_ag_equals_all_reduce=_agree(heads),
        artifacts=Artifacts(nccl_log=log_name),
        metrics=Metrics(rows=tuple(rows), shapes=tuple(shapes)),
    )  # fmt: skip


def _rows(plan: BenchPlan, ranks: list[list[bytes]]) -> list[BenchRow]:
    times = [[msgspec.json.decode(line, type=list[float]) for line in rank] for rank in ranks]
    return [
        bench_row(name, n * ITEM_BYTES[plan.dtype], [[one[case] for one in rank] for rank in times])
        for case, (name, n) in enumerate(plan.cases())
    ]


def _profile(heads: list[dict[str, object]]) -> dict[str, str]:
    """Versions and devices, as the first rank tells them; empty where no rank came so far."""
    if not heads:
        return {}
    machine = {"machine": platform.machine(), "cpus": str(os.cpu_count() or "")}
    return machine | {key: str(value) for key, value in heads[0].items() if key != "agree"}


def _agree(heads: list[dict[str, object]]) -> bool | None:
    said = [head["agree"] for head in heads]
    return all(said) if said and None not in said else None


def _level(failure: str, seen: tuple[Observed, ...] | str) -> EvidenceLevel:
    if failure:
        return EvidenceLevel.PARTIAL
    return EvidenceLevel.MEASURED if isinstance(seen, str) else EvidenceLevel.CONFIRMED


def _decision(level: EvidenceLevel, algorithm: str, seen: tuple[Observed, ...] | str) -> Decision:
    """all_reduce alone is judged: NCCL has a choice of algorithms for it, the others keep theirs
    whatever is asked. A line that does not name its op may be of any, and tells nothing."""
    if level in {EvidenceLevel.NONE, EvidenceLevel.PARTIAL}:
        return Decision.DISCARD
    judged = [] if isinstance(seen, str) else [one for one in seen if one.op == "AllReduce"]
    if not judged:
        return Decision.USE_TIMES
    is_honoured = algorithm == "Auto" or all(one.algo == algorithm.upper() for one in judged)
    return Decision.USE_ALGORITHM if is_honoured else Decision.NOT_HONOURED


def read_record(path: Path) -> BenchRecord:
    """A record written before; raises InputError for anything else."""
    try:
        data = path.read_bytes()
        record = msgspec.json.decode(data, type=BenchRecord) if data else None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"no record of a benchmark: {error}", path=str(path),
            next_step="give a .json that `comminsight bench --run` wrote",
        ) from error  # fmt: skip
    if record is None or record.schema_version != BENCH_SCHEMA_VERSION:
        what = f"a record of version {record.schema_version}" if record else "empty: not ended yet"
        raise InputError(
            what, path=str(path), next_step="give a .json that `comminsight bench --run` wrote"
        )
    return record
