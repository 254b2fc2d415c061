"""``comminsight run``: start the command under recording, watch it, and leave a complete run.

The job never waits for us: recording is set up through the environment, the watch only reads,
and everything it cannot do is written down as a note of the manifest.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from comminsight import __version__
from comminsight.capture.process import boot_id, start_ticks
from comminsight.errors import InputError
from comminsight.launch import child as child_process
from comminsight.launch.environment import RecordingOptions, recording_environment
from comminsight.launch.filesystem import is_network
from comminsight.launch.watch import Watch
from comminsight.model.manifest import LaunchManifest
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunFacts, RunReport
from comminsight.model.units import NS_PER_MS, ns_from_seconds
from comminsight.model.verdict import Verdict
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.manifest import manifest_path, write_manifest
from comminsight.report.catalogue import catalogue
from comminsight.report.verdict_text import headline

WATCH_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One call of ``comminsight run``."""

    command: tuple[str, ...]
    out: Path
    run_id: str
    recording: RecordingOptions = field(default_factory=RecordingOptions)
    is_stopped_on_hang: bool = False
    log: Path | None = None  # takes the job's output instead of our own stdout and stderr
    lang: str = "en"


def default_run_id() -> str:
    """The scheduler's job id, else a name from time and pid: unique on this node."""
    given = os.environ.get("COMMINSIGHT_RUN_ID") or os.environ.get("SLURM_JOB_ID")
    return given or time.strftime("%Y%m%d-%H%M%S", time.localtime()) + f"-{os.getpid()}"


def run_job(request: RunRequest) -> int:
    """The child's exit code (128 + signal when one ended it); the run is in ``request.out``."""
    paths = prepare(request.out)
    spool, notes = choose_spool(paths, request.run_id)
    environment = recording_environment(
        os.environ, run_id=request.run_id, spool=spool, options=request.recording
    )
    manifest = opening_manifest(request, spool, notes)
    manifest_file = manifest_path(paths, manifest.host, os.getpid())
    write_manifest(manifest_file, manifest)
    say(f"recording run {request.run_id} in {request.out}")
    job = child_process.start(request.command, environment, request.log)
    reaction = HangReaction(job, is_stopping=request.is_stopped_on_hang, lang=request.lang)
    watch = Watch(paths, request.run_id, spool, request.recording.overdue_limit_s, reaction.react)
    with child_process.forwarding_signals(job):
        code, signal_number = child_process.wait(job, tick=watch.tick, interval_s=WATCH_INTERVAL_S)
    watch.finish()
    collect_spool(spool, paths)
    closing = msgspec.structs.replace(
        manifest,
        ended_real_ns=time.time_ns(),
        exit_code=code,
        exit_signal=signal_number,
        notes=(*notes, *watch.notes, *reaction.notes),
    )
    write_manifest(manifest_file, closing)
    say(f"run ended with {code}; next: comminsight report {request.out}")
    return code


@dataclass(frozen=True, slots=True)
class HangReaction:
    """What happens once a hang was judged: one line for people, and the end of the job if asked."""

    job: subprocess.Popen[bytes]
    is_stopping: bool
    lang: str
    notes: list[str] = field(default_factory=list)

    def react(self, verdict: Verdict) -> None:
        """Tell, and stop the job when that was asked for and somebody is to blame."""
        seen = verdict.coverage
        facts = RunFacts(
            run_id="", path="", world_size=seen.ranks_expected, ranks_seen=seen.ranks_seen
        )
        report = RunReport(schema_version=REPORT_SCHEMA_VERSION, facts=facts, coverage=seen)
        say(headline(verdict, report, catalogue(self.lang)))
        if self.is_stopping and verdict.culprits:
            say("stopping the job (--stop-on-hang)")
            self.notes.append("the job was stopped after a hang was judged (--stop-on-hang)")
            self.job.terminate()


def prepare(out: Path) -> RunPaths:
    """The folders of the run, made.

    Raises InputError when they cannot be.
    """
    paths = RunPaths(out)
    try:
        paths.create()
    except OSError as error:
        raise InputError(
            f"cannot make the run directory: {error.strerror}",
            path=str(out),
            next_step="choose another one with --out",
        ) from error
    return paths


def choose_spool(paths: RunPaths, run_id: str) -> tuple[Path, tuple[str, ...]]:
    """(where segments are written while the job runs, notes): the run itself if it is local."""
    if not is_network(paths.root):
        return paths.segments.resolve(), ()
    spool = Path("/tmp") / f"comminsight-{os.getuid()}" / "spool" / run_id  # noqa: S108 - 0700 below
    spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    return spool, (f"spooled on {spool}: the run directory is on a network file system",)


def collect_spool(spool: Path, paths: RunPaths) -> None:
    """Move what was spooled elsewhere into the run."""
    if spool == paths.segments.resolve():
        return
    for session in sorted(spool.iterdir()):
        shutil.copytree(session, paths.segments / session.name, dirs_exist_ok=True)
        shutil.rmtree(session, ignore_errors=True)


def opening_manifest(request: RunRequest, spool: Path, notes: tuple[str, ...]) -> LaunchManifest:
    """The manifest as it stands before the job starts."""
    return LaunchManifest(
        run_id=request.run_id,
        host=platform.node(),
        boot_id=boot_id(),
        command=request.command,
        started_real_ns=time.time_ns(),
        started_mono_ns=time.monotonic_ns(),
        launcher_pid=os.getpid(),
        launcher_start_ticks=start_ticks(os.getpid()),
        spool=str(spool),
        overdue_limit_ns=ns_from_seconds(request.recording.overdue_limit_s),
        safe_window_ns=request.recording.safe_window_ms * NS_PER_MS,
        versions={"comminsight": __version__, "python": platform.python_version()},
        notes=notes,
    )


def say(line: str) -> None:
    """One line on stderr; the job's own output stays untouched."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"[comminsight] {line}\n")
        sys.stderr.flush()


def command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The command after ``--``."""
    return tuple(words[1:] if words[:1] == ["--"] else words)
