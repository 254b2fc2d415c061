"""Run every benchmark of this folder one after the other and print its table.

Each benchmark is a program that prints its own numbers (ratios within one run, medians of
interleaved rounds). Exit code 1 when one of them fails.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    "recorder", "nccl_door", "capture_overhead", "segment_read", "engine", "rebuild", "pair_waits",
    "diagnosis", "kineto_read",
)  # fmt: skip


def main() -> int:
    path = os.pathsep.join([str(HERE.parent / "src"), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    wanted = sys.argv[1:] or BENCHMARKS
    print(
        f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    )
    failed = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        begin = time.monotonic()
        result = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py")], env=environment, check=False
        )
        print(f"   ({time.monotonic() - begin:.0f} s)", flush=True)
        if result.returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
