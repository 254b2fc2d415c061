"""``comminsight run [--out DIR] -- COMMAND…``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from comminsight.errors import UsageError
from comminsight.launch.environment import checked_run_id, recording_options
from comminsight.launch.job import RunRequest, command_words, default_run_id, run_job


def parser() -> argparse.ArgumentParser:
    """argparse, because this verb runs beside the job and must start fast."""
    made = argparse.ArgumentParser(
        prog="comminsight run",
        description="Run a command and record the communication of every process it starts.",
        epilog="example: comminsight run --out /data/run1 -- torchrun --nproc-per-node 8 train.py",
    )
    made.add_argument("--out", type=Path, help="run directory (default: comminsight-runs/RUN_ID)")
    made.add_argument("--run-id", help="name of the run (default: scheduler's id, else the time)")
    made.add_argument(
        "--overdue", type=float, metavar="SECONDS",
        help="an op in flight for longer is overdue: evidence is collected (default 60)",
    )  # fmt: skip
    made.add_argument(
        "--stop-on-hang", action="store_true", help="end the job once a hang is judged"
    )
    made.add_argument("--group-map", default="", help='roles of process groups: "NAME=ROLE;..."')
    made.add_argument(
        "--stack-signal", default="", metavar="SIGNAL",
        help="let processes write their own stacks on this signal (for sites without ptrace)",
    )  # fmt: skip
    made.add_argument("--lang", choices=("en", "zh"), default="en")
    made.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ...")
    return made


def main(argv: Sequence[str]) -> int:
    """Exit code of the child."""
    options = parser().parse_args(argv)
    command = command_words(options.command)
    if not command:
        raise UsageError(
            "no command given", next_step="comminsight run -- torchrun ... train.py",
            code="no_command",
        )  # fmt: skip
    given_id = options.run_id
    run_id = checked_run_id(default_run_id() if given_id is None else given_id)
    request = RunRequest(
        command=command,
        out=options.out or Path("comminsight-runs") / run_id,
        run_id=run_id,
        recording=recording_options(
            os.environ,
            overdue_s=options.overdue,
            group_map=options.group_map,
            stack_signal=options.stack_signal,
        ),
        is_stopped_on_hang=options.stop_on_hang,
        lang=options.lang,
    )
    return run_job(request)
