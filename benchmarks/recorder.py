"""What recording an op costs: in C, and from Python through ctypes with and without a busy thread.

CPU time of the calling thread, so that other processes do not count; a no-op call through the same
ctypes door is the baseline. The goal is less than 1000 ns per op in C.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.unit.native.door import ROOT, Door

C_BENCH = ROOT / "build/native/native/tests/bench_recorder"
ROUNDS, OPS = 40, 2000
COST_LINE = re.compile(r"(?P<what>\S.*?)\s+(?P<least>\d+)\s+(?P<median>\d+)$")


def cost_ns(call: Callable[[], object], between: Callable[[], object]) -> tuple[float, float]:
    """(cheapest, median) CPU nanoseconds of one ``call``; ``between`` runs before every round."""
    costs = []
    for _ in range(ROUNDS):
        between()
        begin = time.thread_time_ns()
        for _ in range(OPS):
            call()
        costs.append((time.thread_time_ns() - begin) / OPS)
    costs.sort()
    return costs[0], costs[len(costs) // 2]


class BusyThread:
    """A Python thread that wants the GIL all the time."""

    def __enter__(self) -> None:
        self._is_over = False
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _spin(self) -> None:
        while not self._is_over:
            sum(range(100))


def print_costs(door: Door, comm: int, label: str) -> None:
    version = door.lib.ci_api_version
    begin, end = door.lib.ci_op_begin_args, door.lib.ci_op_end

    def one_op() -> None:
        end(begin(comm, 1, 1, 8, 1, 1 << 20, 2 << 20, -1, 0, 0), 3, 1)

    for name, call in (("ctypes call that does nothing", version), ("begin + end", one_op)):
        least, median = cost_ns(call, lambda: door.lib.ci_flush(5000))
        print(f"{name + label:<44} {least:6.0f} {median:6.0f}")


def c_costs_ns() -> dict[str, float] | None:
    """Median CPU nanoseconds per op of the C door by what was done; None when it is not built."""
    if not C_BENCH.exists():
        return None
    out = subprocess.run([C_BENCH], capture_output=True, text=True, check=True).stdout
    rows = (COST_LINE.match(line) for line in out.splitlines())
    return {row["what"]: float(row["median"]) for row in rows if row}


def main() -> int:
    """Prints both tables; exit code 1 when the C door misses its goal."""
    missed = False
    if C_BENCH.exists():
        out = subprocess.run([C_BENCH], capture_output=True, text=True, check=True).stdout
        print(out)
        cost = next(line for line in out.splitlines() if line.startswith("collective, begin"))
        missed = float(cost.split()[-2]) >= 1000
    else:
        print(f"C: skipped, {C_BENCH.relative_to(ROOT)} is not built (make native)")
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {
            "COMMINSIGHT_BOX_DIR": f"{directory}/box",
            "COMMINSIGHT_SPOOL": f"{directory}/spool",
            "COMMINSIGHT_FLUSH_MS": "20",
        }
        door = Door()
        comm = door.register()
        print(f"{'ns of CPU per op (Python, PyDLL)':<44} {'least':>6} {'median':>6}")
        print_costs(door, comm, "")
        with BusyThread():
            print_costs(door, comm, ", busy thread")
        print(f"{'lost':<44} {door.stats()['lost']}")
        door.close()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
