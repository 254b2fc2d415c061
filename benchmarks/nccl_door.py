"""What NCCL's callbacks cost: CPU time per collective, ours and empty ones played in turns.

The played sequence is that of one blocking AllReduce with its kernel events
(``native/tests/nccl_play.h``). The goal is at most 400 ns for 8 channels, and at most 3.5 times
what the harness costs with empty callbacks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BUILT = Path(__file__).resolve().parents[1] / "build/native/native/tests"
GOAL_NS, GOAL_RATIO, GOAL_CHANNELS = 400.0, 3.5, 8
COST_LINE = re.compile(r"v(\d) +(\d+) +(\d+) +(\d+) +(\d+) +([\d.]+)$")
CLOCK_LINE = re.compile(r"v(\d): ([\d.]+) readings")


@dataclass(frozen=True)
class Cost:
    """One row: CPU nanoseconds per collective, medians of five interleaved rounds."""

    version: int
    n_threads: int
    n_channels: int
    empty_ns: float
    ours_ns: float
    ratio: float
    clock_readings: float | None  # per collective; None when the counting test is not built

    @property
    def holds(self) -> bool | None:
        """Whether the goal holds; None where there is none."""
        if self.n_channels != GOAL_CHANNELS or self.n_threads != 1:
            return None
        return self.ours_ns <= GOAL_NS and self.ratio <= GOAL_RATIO


def _lines(program: str) -> list[str]:
    path = BUILT / program
    if not path.exists():
        return []
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout.splitlines()


def costs() -> list[Cost]:
    """Rows for v4 to v7 at 1, 8 and 24 channels, and two threads; empty when it is not built."""
    readings = {
        int(row[1]): float(row[2]) for row in map(CLOCK_LINE.match, _lines("no_alloc_nccl")) if row
    }
    rows = filter(None, map(COST_LINE.match, _lines("bench_nccl")))
    return [
        Cost(
            int(row[1]), int(row[2]), int(row[3]), float(row[4]), float(row[5]), float(row[6]),
            readings.get(int(row[1])),
        )
        for row in rows
    ]  # fmt: skip


def main() -> int:
    """Prints the table; exit code 1 when the goal is missed."""
    table = costs()
    if not table:
        print(f"skipped, {BUILT / 'bench_nccl'} is not built (make native)")
        return 0
    print("     threads channels  empty ns  ours ns   ratio  clock readings  goal")
    for cost in table:
        goal = {None: "", True: "holds", False: "missed"}[cost.holds]
        readings = "-" if cost.clock_readings is None else f"{cost.clock_readings:.2f}"
        print(
            f"v{cost.version} {cost.n_threads:>9} {cost.n_channels:>8}"
            f" {cost.empty_ns:>9.0f} {cost.ours_ns:>8.0f} {cost.ratio:>7.2f}"
            f"  {readings:>14}  {goal}"
        )
    print(f"goal at {GOAL_CHANNELS} channels: {GOAL_NS:.0f} ns, {GOAL_RATIO} times empty callbacks")
    return 1 if any(cost.holds is False for cost in table) else 0


if __name__ == "__main__":
    sys.exit(main())
