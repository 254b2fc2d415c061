"""Launches one benchmark for each algorithm and keeps what it measured, however it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from comminsight.analysis.bench_statistics import bench_row, shape_of
from comminsight.errors import InputError, UsageError
from comminsight.format.log_nccl import body
from comminsight.model.bench import (
    ITEM_BYTES,
    UNCONFIRMED,
    Artifacts,
    BenchPlan,
    BenchRecord,
    BenchRow,
    Decision,
    EvidenceLevel,
    Metrics,
    Observed,
)  # fmt: skip
from comminsight.model.log_event import LogCode

PREFIX = "NCCL INFO "
ALGORITHM_OF_NUMBER = {"0": "TREE", "1": "RING"}
PROTOCOL_OF_NUMBER = {"0": "LL", "1": "LL128", "2": "SIMPLE"}


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


def refuse_too_few_gpus(plan: BenchPlan) -> None:
    """Raises before anything is launched."""
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


def observed(log: str) -> tuple[Observed, ...] | str:
    """Algorithms told by tuning lines alone; an echo of NCCL_ALGO, a ring or tree of the topology
    search is no evidence."""
    found = set()
    for line in log.splitlines():
        if PREFIX in line and (read := body(line.partition(PREFIX)[2], "INFO")):
            code, values = read
            if code is LogCode.NCCL_TUNING:
                said = {key: str(value) for key, value in values.items()}
                algo, proto = said.get("algo", ""), said.get("proto", "")
                found.add((
                    said.get("op", ""), ALGORITHM_OF_NUMBER.get(algo, algo),
                    PROTOCOL_OF_NUMBER.get(proto, proto), said.get("channels", ""),
                ))  # fmt: skip
    if not found:
        return UNCONFIRMED
    return tuple(
        Observed(op=op, algo=algo, proto=proto, channels=channels, source="nccl_tuning_line")
        for op, algo, proto, channels in sorted(found)
    )


def measure(plan: BenchPlan, algorithm: str, out: Path, *, timeout_s: float) -> Path:
    """Path of the new record ``LABEL-ALGORITHM-NNN.json``; its log lies beside it."""
    out.mkdir(parents=True, exist_ok=True)
    record_path = _reserved(out, f"{plan.label}-{algorithm}")
    log_path = record_path.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="comminsight-bench-") as folder:
        plan_path = Path(folder, "plan.json")
        plan_path.write_bytes(msgspec.json.encode(plan))
        failure = _launched(
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
    number = 1
    while True:
        path = out / f"{stem}-{number:03d}.json"
        with contextlib.suppress(FileExistsError):
            path.open("x").close()
            return path
        number += 1


def _launched(words: list[str], variables: dict[str, str], log: Path, timeout_s: float) -> str:
    """How the launch failed, empty when it did not; the whole process group is ended."""
    with log.open("xb") as sink:
        job = subprocess.Popen(
            words, env=variables, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = job.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"not done after {timeout_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return f"the launcher ended with {code}" if code else ""


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _record(
    plan: BenchPlan, algorithm: str, ranks: list[list[bytes]],
    seen: tuple[Observed, ...] | str, failure: str, log_name: str,
) -> BenchRecord:  # fmt: skip
    n_done = min(max(0, len(lines) - 1) for lines in ranks)
    heads = [msgspec.json.decode(lines[0]) for lines in ranks if lines]
    rows = _rows(plan, [lines[1 : n_done + 1] for lines in ranks]) if n_done else []
    names = dict.fromkeys(row.collective for row in rows)
    shapes = [shape_of([row for row in rows if row.collective == name]) for name in names]
    level = _level(bool(rows), failure, seen)
    profile = {key: str(value) for key, value in (heads[0] if heads else {}).items()}
    profile.pop("agree", None)
    return BenchRecord(
        workload_id=plan.workload_id, label=plan.label, backend=plan.backend, dtype=plan.dtype,
        world_size=plan.n_ranks, warmup=plan.warmup, repeats=plan.repeats,
        algorithm_requested=algorithm, algorithm_observed=seen, environment_profile=profile,
        evidence_level=level, decision=_decision(level, algorithm, seen), failure=failure,
        rs_ag_equals_all_reduce=all(head["agree"] for head in heads) if heads else None,
        artifacts=Artifacts(nccl_log=log_name),
        metrics=Metrics(rows=tuple(rows), shapes=tuple(shapes)),
    )  # fmt: skip


def _rows(plan: BenchPlan, ranks: list[list[bytes]]) -> list[BenchRow]:
    times = [[msgspec.json.decode(line, type=list[float]) for line in rank] for rank in ranks]
    return [
        bench_row(name, n * ITEM_BYTES[plan.dtype], [[one[case] for one in rank] for rank in times])
        for case, (name, n) in enumerate(plan.cases())
    ]


def _level(has_rows: bool, failure: str, seen: tuple[Observed, ...] | str) -> EvidenceLevel:  # noqa: FBT001
    if not has_rows:
        return EvidenceLevel.NONE
    if failure:
        return EvidenceLevel.PARTIAL
    return EvidenceLevel.MEASURED if isinstance(seen, str) else EvidenceLevel.CONFIRMED


def _decision(level: EvidenceLevel, algorithm: str, seen: tuple[Observed, ...] | str) -> Decision:
    if level in {EvidenceLevel.NONE, EvidenceLevel.PARTIAL}:
        return Decision.DISCARD
    if isinstance(seen, str):
        return Decision.USE_TIMES
    is_honoured = algorithm == "Auto" or all(one.algo == algorithm.upper() for one in seen)
    return Decision.USE_ALGORITHM if is_honoured else Decision.NOT_HONOURED


def read_record(path: Path) -> BenchRecord:
    """A record written before; raises InputError for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BenchRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"no record of a benchmark: {error}", path=str(path),
            next_step="give a .json that `comminsight bench --run` wrote",
        ) from error  # fmt: skip
