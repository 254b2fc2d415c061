"""Plants faults in real jobs, and counts what is made of them: see ``tools/score_lab.py``.

Every case is a job of its own under ``comminsight run``; its ranks are forked by ``fork_server``,
so that none has to import torch. Judged are the report of the run and, where the job was stopped
while it hung, the Flight Recorder dumps of its ranks.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from comminsight.lab import ask
from comminsight.lab.cases import Case
from comminsight.lab.scoring import (
    Mark,
    Outcome,
    faults_of,
    mark_of,
    said_of,
    summary,
    table,
)
from comminsight.model.units import ns_from_seconds
from comminsight.pipeline.flight_recorder import diagnose_flight_recorder
from comminsight.run import open_run

OVERDUE_S = 3.0
TIMEOUT_S = 12.0  # of a job that is stuck and of which no verdict stopped it
LONGEST_S = 60.0
START_S = 60.0
N_AT_ONCE = 4
RECORDED, DUMPED = "recording", "dumps"
PLANTED = frozenset({"stop", "exit", "deviation", "late"})


@dataclass(frozen=True, slots=True)
class Lab:
    """Where cases are run: the socket of the fork server, and a folder for the runs."""

    address: Path
    folder: Path

    def outcomes(self, case: Case) -> list[Outcome]:
        """Run the case and judge it."""
        folder = self.folder / case.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "job" / "dumps").mkdir(parents=True)
        code = run_case(case, folder, self.address)
        if not is_planted(case, folder / "job"):
            last = (folder / "run.log").read_text().splitlines()[-1:]
            return [Outcome(case, RECORDED, Mark.VOID, f"nothing was planted: {last}")]
        verdicts = open_run(folder / "run").report().verdicts
        found = [Outcome(case, RECORDED, mark_of(case, verdicts), said_of(verdicts))]
        went_through = case.leaves_dumps and code == 0  # with wrong data: no dumps are taken
        if (case.leaves_dumps or case.dump_s) and not went_through:
            found += dump_outcomes(case, folder / "job" / "dumps")
        return found


def run_case(case: Case, folder: Path, address: Path) -> int:
    """Exit code of the job under ``comminsight run``."""
    is_stuck = case.leaves_dumps
    request = {
        "arguments": case.arguments, "ranks": case.ranks, "folder": str(folder / "job"),
        "timeout_s": TIMEOUT_S if is_stuck else LONGEST_S, "kill_s": case.kill_s,
        "dump_s": case.dump_s,
    }  # fmt: skip
    (folder / "request.json").write_text(json.dumps(request))
    options = ["--out", str(folder / "run"), "--run-id", case.name, "--overdue", str(OVERDUE_S)]
    options += ["--stop-on-hang"] if case.is_stopped else []
    job = [sys.executable, "-I", "-S", ask.__file__, str(address), str(folder / "request.json")]
    command = [sys.executable, "-m", "comminsight.cli", "run", *options, "--", *job]
    with (folder / "run.log").open("wb") as log:
        return subprocess.run(command, stdout=log, stderr=log, check=False).returncode


def is_planted(case: Case, folder: Path) -> bool:
    """Whether the job came to what was to happen in it, or began, where nothing was to."""
    truth = folder / "truth.jsonl"
    kinds = {line["kind"] for line in read_lines(truth)} if truth.is_file() else set()
    return not kinds.isdisjoint({"job"} if case.is_untouched else PLANTED)


def read_lines(path: Path) -> list[dict[str, object]]:
    """What the ranks wrote about themselves."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def dump_outcomes(case: Case, folder: Path) -> list[Outcome]:
    """What the dumps alone give; nothing where the job was over, or had crashed, before any."""
    if not any(folder.glob("rank_*[0-9]")):
        return []
    report = diagnose_flight_recorder(
        [folder], world_size=case.ranks, overdue_limit_ns=ns_from_seconds(OVERDUE_S)
    )
    verdicts = (report.verdict,)
    return [Outcome(case, DUMPED, mark_of(case, verdicts), said_of(verdicts))]


@contextlib.contextmanager
def open_lab(folder: Path, environment: Mapping[str, str]) -> Iterator[Lab]:
    """A lab whose ranks are recorded: ``environment`` is that of a recorded process."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-") as short:  # names of sockets are short
        address = Path(short) / "socket"
        command = [sys.executable, "-m", "comminsight.lab.fork_server", str(address)]
        more = {"TORCH_FR_BUFFER_SIZE": "2000"}
        with subprocess.Popen(command, env={**environment, **more}) as server:
            try:
                until_there(address, server)
                yield Lab(address, folder)
            finally:
                server.kill()


def until_there(path: Path, server: subprocess.Popen[bytes]) -> None:
    """Wait for the server's socket.

    Raises RuntimeError when it does not come.
    """
    deadline_s = time.monotonic() + START_S
    while not path.exists():
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError("the fork server did not start")
        time.sleep(0.05)


def run_cases(lab: Lab, cases: Sequence[Case], n_at_once: int = N_AT_ONCE) -> list[Outcome]:
    """The outcomes in the order of the cases; timed ones run alone, first."""
    timed = [case for case in cases if case.is_timed]
    others = [case for case in cases if not case.is_timed]
    found = [one for case in timed for one in lab.outcomes(case)]
    with ThreadPoolExecutor(n_at_once) as threads:
        for outcomes in threads.map(lab.outcomes, others):
            found += outcomes
    return found


def told(outcomes: Sequence[Outcome]) -> str:
    """The tables of both sources, and every run that is not right."""
    parts = [f"{table(outcomes, one)}\n\n{summary(outcomes, one)}" for one in (RECORDED, DUMPED)]
    return "\n\n".join([*parts, faults_of(outcomes)])
