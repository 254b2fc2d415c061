"""Overlap of communication with compute: numbers and time beside HolisticTraceAnalysis.

Run: ``python benchmarks/vs_hta.py [TRACE...]`` (several of one folder are ranks of one job);
without traces those of ``../shared/samples`` and of a real job of two ranks that it runs. HTA is
installed by pip into an environment of its own under the temporary folder. CPU seconds (with child
processes) from file to numbers, imports not counted, the best of three on both sides.

*HTA way* is our number with HTA's choices of what to count: nothing that was launched after the
last mark of a profiler step (the mark on the GPU, where there is one) or whose launch is not in the
trace, and begins and ends shortened to whole microseconds where stamps are fractions. Where it
equals HTA's number, these choices are the whole difference. *ours* counts all that was launched in
a step.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from msgspec.structs import replace

from comminsight.analysis.exposure import exposures
from comminsight.analysis.intervals import EMPTY, common, length_ns, united
from comminsight.format.expanding import expanded_bytes
from comminsight.pipeline.traces import trace_evidence

REPO = Path(__file__).resolve().parents[1]
SAMPLES = REPO.parent / "shared/samples"
REPEATS = 3
SAME_PCT = 0.011  # HTA rounds to hundredths of a percent
WANTED = ["HolisticTraceAnalysis", "pandas<3"]  # with pandas 3 it fails on some of the traces
ASK_HTA = """
import json, logging, resource, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
def cpu_seconds():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
files = dict(enumerate(sys.argv[1:]))
answer = {"seconds": 1e9, "overlap": {}, "error": "", "stragglers": None}
try:
    for _ in range(REPEATS):
        begin = cpu_seconds()
        analysis = TraceAnalysis(trace_files=dict(files), trace_dir="/")
        rows = analysis.get_comm_comp_overlap(visualize=False)
        answer["seconds"] = min(answer["seconds"], cpu_seconds() - begin)
    answer["overlap"] = {int(r): float(p) for r, p in rows.itertuples(index=False)}
except Exception as error:
    answer["error"] = f"{type(error).__name__}: {error}"[:60]
if len(files) > 1:
    try:
        answer["stragglers"] = [int(r) for r in analysis.get_potential_stragglers()]
    except Exception as error:
        answer["stragglers"] = type(error).__name__
print("ANSWER" + json.dumps(answer))
"""
_NCCL = re.compile(r"^nccl.*Kernel")
_NOT_COMPUTE = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")
_HOST = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "cuda_sync", "cpu_op"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})


@dataclass
class Row:
    """One set of traces; percentages by place of the file, NaN where there is no number."""

    name: str
    paths: Sequence[Path]
    ours_pct: list[float] = field(default_factory=list)
    ours_seconds: float = math.inf
    hta_pct: list[float] = field(default_factory=list)
    hta_seconds: float = math.inf
    hta_error: str = ""
    hta_stragglers: Any = None
    hta_way_pct: list[float] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """How the two compare."""
        if self.hta_error:
            return f"HTA fails: {self.hta_error}"
        if all(map(math.isnan, self.hta_pct)):
            return "HTA finds no communication"
        if _is_same(self.hta_pct, self.ours_pct):
            return "same"
        if _is_same(self.hta_pct, self.hta_way_pct):
            return "same on HTA's intervals"
        return "DIFFERS"


def _is_same(some: Sequence[float], others: Sequence[float]) -> bool:
    pairs = list(zip(some, others, strict=False))
    return len(some) == len(others) and all(abs(a - b) <= SAME_PCT for a, b in pairs)


def hta_python() -> Path:
    """The interpreter of an environment that has HTA; made on the first call."""
    home = Path(gettempdir()) / "comminsight-hta"
    python = home / "bin/python"
    if not python.exists():
        venv.create(home, with_pip=True)
    have = subprocess.run([python, "-c", "import hta, pandas"], capture_output=True, check=False)
    if have.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", *WANTED], check=True)
    return python


def ask_hta(python: Path, row: Row) -> None:
    """HTA's numbers, time and stragglers, or why there are none."""
    program = ASK_HTA.replace("REPEATS", str(REPEATS))
    told = subprocess.run(
        [python, "-c", program, *map(str, row.paths)], capture_output=True, text=True, check=False
    )
    found = told.stdout.rpartition("ANSWER")[2]
    answer = json.loads(found) if found else {"error": told.stderr[-60:], "overlap": {}}
    row.hta_error = answer["error"]
    row.hta_pct = [answer["overlap"].get(str(n), math.nan) for n in range(len(row.paths))]
    row.hta_seconds = answer.get("seconds", math.inf)
    row.hta_stragglers = answer.get("stragglers")


def ask_us(row: Row) -> None:
    """Our numbers and time, by the code that ``diagnose`` runs."""
    for _ in range(REPEATS):
        begin = time.process_time()
        activities = trace_evidence(row.paths).activities
        exposures(activities)
        row.ours_seconds = min(row.ours_seconds, time.process_time() - begin)
    whole = exposures(replace(one, step=-1) for one in activities)
    row.ours_pct = [_pct(one.overlapped_ns, one.communication_ns) for one in whole]


def _pct(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else math.nan


def hta_way_pct(path: Path) -> float:
    """The overlap over the intervals that HTA counts, by our set operations."""
    events = json.loads(expanded_bytes(path.read_bytes(), max_bytes=1 << 30))["traceEvents"]
    events = [one for one in events if "dur" in one and "cat" in one and one["cat"] != "Trace"]
    kept = _launched_before_last_step(events)
    is_fraction = any(isinstance(one["ts"], float) for one in events)
    interval = _whole_us if is_fraction else _exact
    communication = _set([one for one in kept if _NCCL.match(one["name"])], interval)
    compute = _set([one for one in kept if not _NOT_COMPUTE.match(one["name"])], interval)
    return _pct(length_ns(common(communication, compute)), length_ns(communication))


def _launched_before_last_step(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    device = [
        one
        for one in events
        if one["cat"].lower() in _DEVICE and (one.get("args") or {}).get("stream") is not None
    ]
    steps = [one for one in events if "ProfilerStep" in one["name"]]
    if len({one["name"] for one in steps}) < 2:
        return device
    last = max(one["ts"] for one in steps)
    known = {
        one["args"].get("correlation")
        for one in events
        if one["cat"].lower() in _HOST and one["ts"] < last and one.get("args")
    }
    return [one for one in device if one["args"].get("correlation") in known]


def _exact(one: dict[str, Any]) -> tuple[int, int]:
    return round(one["ts"] * 1000), round((one["ts"] + one["dur"]) * 1000)


def _whole_us(one: dict[str, Any]) -> tuple[int, int]:
    return math.ceil(one["ts"]) * 1000, math.floor(one["ts"] + one["dur"]) * 1000


def _set(
    events: Sequence[dict[str, Any]], interval: Callable[[dict[str, Any]], tuple[int, int]]
) -> np.ndarray:
    rows = [row for row in map(interval, events) if row[1] > row[0]]
    return united(np.array(rows, np.int64)) if rows else EMPTY


def real_run(folder: Path) -> list[Path]:
    """The traces of a job of two ranks on gloo that runs now."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    program = ["-m", "tests.integration.kineto_program", str(folder)]
    subprocess.run([sys.executable, *launcher, *program], cwd=REPO, check=True, capture_output=True)
    return sorted(folder.iterdir())


def renamed(paths: Sequence[Path], folder: Path) -> list[Path]:
    """The traces with the kernel names that NCCL has had since 2.19."""
    made = []
    for path in paths:
        text = expanded_bytes(path.read_bytes(), max_bytes=1 << 30)
        made.append(folder / path.name.removesuffix(".gz"))
        made[-1].write_bytes(text.replace(b"ncclKernel_", b"ncclDevKernel_"))
    return made


def trace_sets(folder: Path) -> list[Row]:
    """The samples, one of them with today's names, and a real run."""
    hta, own = SAMPLES / "hta-kineto", SAMPLES / "own-kineto"
    ranks = sorted(hta.glob("sampled_rank-*.json.gz"))
    names = ("df_index_resolver", "nccl_data", "trace_diff_test")
    single = [hta / f"{name}.json.gz" for name in names]
    single += sorted((SAMPLES / "tracelens-kineto").glob("*.json.gz"))
    rows = [Row(path.name.partition(".")[0], [path]) for path in single if path.exists()]
    if ranks:
        rows.append(Row("sampled, 2 ranks", ranks))
        rows.append(Row("the same, ncclDevKernel", renamed(ranks, folder)))
    if own.exists():
        rows.append(Row("own gloo, 2 ranks", sorted(own.glob("*.json.gz"))))
    (folder / "real").mkdir()
    rows.append(Row("a gloo job run now", real_run(folder / "real")))
    return rows


def _shown(values: Sequence[float]) -> str:
    return " ".join("-" if math.isnan(value) else f"{value:.2f}" for value in values)


def print_row(row: Row) -> None:
    """One line of the table."""
    has_times = math.isfinite(row.hta_seconds) and row.hta_seconds < 1e9
    times = f"{row.hta_seconds:7.2f}" if has_times else f"{'-':>7}"
    ratio = f"{row.hta_seconds / row.ours_seconds:5.0f}x" if has_times else f"{'-':>6}"
    stragglers = "" if row.hta_stragglers is None else f"; HTA's stragglers: {row.hta_stragglers}"
    print(
        f"{row.name[:26]:26} {_shown(row.hta_pct):>12} {_shown(row.ours_pct):>12} "
        f"{_shown(row.hta_way_pct):>12} {times} {row.ours_seconds:7.3f} {ratio}  "
        f"{row.verdict}{stragglers}"
    )


def main() -> None:
    python = hta_python()
    with TemporaryDirectory() as folder:
        given = [*map(Path, sys.argv[1:])]
        rows = [Row("given", given)] if given else trace_sets(Path(folder))
        print(
            f"{'overlapped %':26} {'HTA':>12} {'ours':>12} {'HTA way':>12} "
            f"{'HTA s':>7} {'ours s':>7} {'ratio':>6}"
        )
        for row in rows:
            ask_us(row)
            ask_hta(python, row)
            row.hta_way_pct = [hta_way_pct(path) for path in row.paths]
            print_row(row)


if __name__ == "__main__":
    main()
