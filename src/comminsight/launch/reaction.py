"""What happens once a hang was judged: one line for people, and the end of the job if asked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from comminsight.capture.process import is_running
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunFacts, RunReport
from comminsight.model.verdict import Cause, Message, Verdict
from comminsight.report.catalogue import catalogue
from comminsight.report.verdict_text import headline

STOP_GRACE_S = 40.0  # torchrun gives its workers 30 s after SIGTERM
LEFTOVER_GRACE_S = 2.0
POLL_S = 0.05


@dataclass(slots=True)
class HangReaction:
    """Tells of every hang; with ``is_stopping`` it ends the job at the first one that is judged."""

    job: subprocess.Popen[bytes]
    is_stopping: bool
    lang: str
    notes: list[Message] = field(default_factory=list)
    told: str = ""  # the last verdict that was told
    _stopped_s: float = 0.0

    def react(self, verdict: Verdict) -> None:
        """Tell, and stop the job when that was asked for and the hang was understood."""
        seen = verdict.coverage
        facts = RunFacts(
            run_id="", path="", world_size=seen.ranks_expected, ranks_seen=seen.ranks_seen
        )
        report = RunReport(schema_version=REPORT_SCHEMA_VERSION, facts=facts, coverage=seen)
        words = catalogue(self.lang)
        self.told = headline(verdict, report, words)
        say(self.told)
        if self.is_stopping and not self._stopped_s and verdict.cause is not Cause.NO_VERDICT:
            say(words.text("run.stopping"))
            self.notes.append(Message("launch.stopped"))
            self._stopped_s = time.monotonic()
            self.job.terminate()

    def tick(self) -> None:
        """A job that does not end when asked is killed."""
        if self._stopped_s and time.monotonic() - self._stopped_s > STOP_GRACE_S:
            self.job.kill()

    def finish(self, processes: Iterable[tuple[str, int, int]]) -> None:
        """After a stop: end recorded processes that the command left behind, such as the ranks of
        a launcher that a shell had started."""
        if not self._stopped_s:
            return
        left = [(pid, ticks) for _, pid, ticks in processes if is_running(pid, ticks)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline_s = time.monotonic() + LEFTOVER_GRACE_S
            for pid, _ in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            while left and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
                left = [(pid, ticks) for pid, ticks in left if is_running(pid, ticks)]


def say(line: str) -> None:
    """One line on stderr; the job's own output stays untouched."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"[comminsight] {line}\n")
            sys.stderr.flush()
