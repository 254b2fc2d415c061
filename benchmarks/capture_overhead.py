"""What capture costs a real job on two CPU ranks: per op, and as a share of a 200 ms step.

Pairs of runs, one recorded and one not, in changing order (``capture_overhead_pairs.py``). Reported
are the medians over the pairs of (recorded - bare). CPU time of the whole process stands beside
wall time, because other work on the machine disturbs it less.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from comminsight.errors import InputError
from comminsight.launch.environment import native_library
from comminsight_inject import environment

HERE = Path(__file__).resolve().parent
STEP_MS = 200.0
MEASURES = {
    "op_wall_us": "all_reduce of 4 floats, wall",
    "op_cpu_us": "all_reduce of 4 floats, CPU of the process",
    "step_wall_us": "DDP step, wall",
    "step_cpu_us": "DDP step, CPU of the process",
}


Pairs = list[dict[str, dict[str, float]]]  # by "bare" and "recorded", then by measure


def print_table(pairs: Pairs) -> None:
    print(f"{'':44}{'bare':>10}{'recorded':>10}{'added':>9}   (us, medians of {len(pairs)} pairs)")
    for key, label in MEASURES.items():
        bare = statistics.median(pair["bare"][key] for pair in pairs)
        recorded = statistics.median(pair["recorded"][key] for pair in pairs)
        added = added_us(pairs, key)
        share = f"   {added / (STEP_MS * 10):.2f} % of {STEP_MS:.0f} ms" if "step" in key else ""
        print(f"{label:44}{bare:10.0f}{recorded:10.0f}{added:9.0f}{share}")


def added_us(pairs: Pairs, key: str) -> float:
    """Median over the pairs of what recording adds, microseconds."""
    return statistics.median(pair["recorded"][key] - pair["bare"][key] for pair in pairs)


def run_worker(name: str, folder: str, *, is_recorded: bool = True) -> str:
    """What ``name`` printed. Raises InputError without torch or recorder."""
    if importlib.util.find_spec("torch") is None:
        raise InputError("torch is not installed")
    base = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "PYTHONWARNINGS": "ignore"}
    env = environment(str(native_library()), folder, "overhead", base)
    env["COMMINSIGHT_BOX_DIR"] = folder
    if not is_recorded:
        env["COMMINSIGHT_LIBRARY"] = ""
    worker = [sys.executable, str(HERE / name), folder]
    return subprocess.run(worker, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured_pairs() -> Pairs:
    """The measures of every pair of runs; ``PAIRS`` in the environment says how many."""
    with tempfile.TemporaryDirectory() as folder:
        run_worker("capture_overhead_pairs.py", folder)
        pairs: Pairs = json.loads(Path(folder, "pairs.json").read_text())
    return pairs


def alone_us() -> dict[str, float]:
    """CPU microseconds per op in a world of one rank, ``bare`` and ``recorded``."""
    costs = {}
    for side in ("bare", "recorded"):
        with tempfile.TemporaryDirectory() as folder:
            out = run_worker("capture_alone.py", folder, is_recorded=side == "recorded")
            has_records = any(Path(folder).rglob("*.ciseg"))
        assert has_records == (side == "recorded"), side
        costs[side] = float(out)
    return costs


def main() -> int:
    try:
        alone = alone_us()
        print_table(measured_pairs())
    except InputError as error:
        print(f"skipped: {error}")
        return 0
    bare, recorded = alone.values()
    label = "all_reduce in a world of one, CPU"
    print(f"{label:44}{bare:10.0f}{recorded:10.0f}{recorded - bare:9.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
