"""Rebuild of an archive: from Parquet and segments, its memory, and on two workers.

    python benchmarks/rebuild.py [records in millions] [million records of the long stream]

Rates are CPU time of this process. The scale-out part writes 32 sessions, rebuilds them serially,
on two processes and on Ray with two workers, five rounds interleaved, and prints medians: CPU
seconds of all workers and wall time over the serial ones. Start-up is excluded: every executor
has run a small task before. Wall times say something on a machine that has nothing else to do:
how long the serial run waited for a processor or a disk is printed beside them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.engine import batches, comms, one_step, templates
from tests.builders.segment import segment_bytes, write_segment

from comminsight.model.event import concatenate_rows
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.executor import Executor, Ok, PoolExecutor, SerialExecutor
from comminsight.pipeline.rebuild_archive import ParquetTask, rebuild_parquet
from comminsight.pipeline.rebuild_tasks import Rebuilt, SegmentsTask, rebuild_segments
from comminsight.semantics.engine import SessionEngine
from comminsight.store.archive import Archive
from comminsight.store.events import SessionEvents, block_name, export_all
from comminsight.store.sessions import export_sessions, session_entry

N_SESSIONS = 32
ROUNDS = 5
GOAL_MB = 300
SERIAL = "serial"


def who(rank: int) -> SessionIdentity:
    return SessionIdentity(
        session_id=f"deadbeef-{4000 + rank}-77", boot_id="deadbeef-0000-4000-8000-000000000000",
        pid=4000 + rank, pid_start_ticks=77, global_rank=rank, world_size=64, run_id="bench",
    )  # fmt: skip


def write_parquet(root: Path, n_records: int) -> ParquetTask:
    """An export of one session."""
    archive = Archive.local(root)
    records = concatenate_rows(list(batches(n_records)))
    export_all([SessionEvents(who(0), records, np.arange(-1, 4, dtype=np.int32))], archive, "")
    export_sessions([session_entry(who(0), comms(), {}, is_over=True)], archive, "")
    return ParquetTask(str(root), block_name(0), str(root / "steps"))


def write_sessions(root: Path, n_records: int) -> list[SegmentsTask]:
    """``N_SESSIONS`` sessions of one sealed segment each."""
    records = concatenate_rows(list(batches(n_records)))
    tasks = []
    for rank in range(N_SESSIONS):
        folder = root / "inspector_logs" / who(rank).session_id
        write_segment(folder, segment_bytes(records, comms(), who(rank)))
        tasks.append(SegmentsTask(str(folder), str(root / "steps")))
    return tasks


def rate(task: Callable[[Any], tuple[Rebuilt, ...]], item: Any, n_records: int) -> float:
    """M records per CPU second into an empty folder, best of three: where steps of an earlier
    rebuild are replaced the file system also flushes, on this process's account."""
    spent_s = []
    for _ in range(3):
        shutil.rmtree(item.steps_folder, ignore_errors=True)
        begin_s = time.process_time()
        (rebuilt,) = task(item)
        spent_s.append(time.process_time() - begin_s)
        assert rebuilt.record is not None
        assert rebuilt.record.n_steps == n_records // len(one_step()), rebuilt
    return n_records / min(spent_s) / 1e6


def long_stream_mb(n_records: int) -> float:
    """Largest resident memory of a process that feeds such a stream to an engine, MB (1e6)."""
    code = f"from benchmarks.rebuild import feed; feed({n_records})"
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(out.stdout)


def feed(n_records: int) -> None:
    """Print the peak of this process after a stream from a generator."""
    engine = SessionEngine(templates(), identity=who(0))
    engine.add_comms(comms())
    n_steps = sum(len(engine.push(batch)) for batch in batches(n_records)) + len(engine.finish())
    assert n_steps == n_records // len(one_step())
    # not ru_maxrss: that of a child begins with what its parent held
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(int(peak) * 1024 / 1e6)


def timed(task: SegmentsTask) -> float:
    """CPU seconds of one task, measured in its worker."""
    begin_s = time.process_time()
    rebuild_segments(task)
    return time.process_time() - begin_s


def one_round(executor: Executor, tasks: list[SegmentsTask]) -> tuple[float, float]:
    """(CPU seconds of all tasks, wall seconds)."""
    begin_s = time.monotonic()
    results = list(executor.map_unordered(timed, tasks))
    wall_s = time.monotonic() - begin_s
    spent = [result.value for result in results if isinstance(result, Ok)]
    assert len(spent) == len(tasks), results
    return sum(spent), wall_s


def scale_out(tasks: list[SegmentsTask], executors: dict[str, Executor]) -> dict[str, list[float]]:
    """Median CPU and wall ratios to the serial run of the same round, by executor; of ``SERIAL``
    itself the wall time over its CPU time."""
    for executor in executors.values():
        one_round(executor, tasks[:4])  # start-up
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in [SERIAL, *executors]}
    for _ in range(ROUNDS):
        serial_cpu_s, serial_s = one_round(SerialExecutor(), tasks)
        ratios[SERIAL].append((1.0, serial_s / serial_cpu_s))
        for name, executor in executors.items():
            cpu_s, wall_s = one_round(executor, tasks)
            ratios[name].append((cpu_s / serial_cpu_s, wall_s / serial_s))
    return {
        name: [statistics.median(column) for column in zip(*pairs, strict=True)]
        for name, pairs in ratios.items()
    }


def with_ray() -> dict[str, Executor]:
    """The Ray executor on two workers, where Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        print("Ray: not installed (pip install 'comminsight[ray]')")
        return {}
    return {"Ray": importlib.import_module("comminsight.pipeline.ray_executor").RayExecutor(2)}


def main() -> None:
    n_records = round(float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e6)
    n_long = round(float(sys.argv[2] if len(sys.argv) > 2 else 50) * 1e6)
    root = Path(tempfile.mkdtemp())
    try:
        item = write_parquet(root / "archive", n_records)
        print(f"from Parquet: {rate(rebuild_parquet, item, n_records):.1f} M records/s/core")
        tasks = write_sessions(root / "run", n_records // 8)
        found = rate(rebuild_segments, tasks[0], n_records // 8)
        print(f"from segments: {found:.1f} M records/s/core")
        print(
            f"{n_long / 1e6:.0f} M records from a generator: {long_stream_mb(n_long):.0f} MB"
            f" resident at most (goal {GOAL_MB})"
        )
        executors: dict[str, Executor] = {"two processes": PoolExecutor(2), **with_ray()}
        ratios = scale_out(tasks, executors)
        print(f"serial: {ratios.pop(SERIAL)[1]:.2f} x its CPU time in wall time")
        for name, (cpu, wall) in ratios.items():
            print(f"{name}: {cpu:.2f} x the CPU of serial, {wall:.2f} x the wall time")
        for executor in executors.values():
            executor.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
