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


def print_table(pairs: list[dict[str, dict[str, float]]]) -> None:
    print(f"{'':44}{'bare':>10}{'recorded':>10}{'added':>9}   (us, medians of {len(pairs)} pairs)")
    for key, label in MEASURES.items():
        bare = statistics.median(pair["bare"][key] for pair in pairs)
        recorded = statistics.median(pair["recorded"][key] for pair in pairs)
        added = statistics.median(pair["recorded"][key] - pair["bare"][key] for pair in pairs)
        share = f"   {added / (STEP_MS * 10):.2f} % of {STEP_MS:.0f} ms" if "step" in key else ""
        print(f"{label:44}{bare:10.0f}{recorded:10.0f}{added:9.0f}{share}")


def main() -> int:
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 0
    try:
        library = str(native_library())
    except InputError as error:
        print(f"skipped: {error}")
        return 0
    base = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        env = environment(library, folder, "overhead", base)
        worker = [sys.executable, str(HERE / "capture_overhead_pairs.py"), folder]
        subprocess.run(worker, env=env, check=True)
        print_table(json.loads(Path(folder, "pairs.json").read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
