"""``comminsight run``: start the command under recording, watch it, and leave a complete run.

The job never waits for us: recording is set up through the environment, the watch only reads,
and everything it cannot do is written down as a note of the manifest.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shlex
import shutil
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from comminsight import __version__
from comminsight.capture.process import boot_id, start_ticks
from comminsight.errors import InputError, UsageError
from comminsight.launch import child as child_process
from comminsight.launch.boxes import RunBoxes, remove_old
from comminsight.launch.environment import RecordingOptions, own_folder, recording_environment
from comminsight.launch.filesystem import is_network
from comminsight.launch.plugin import foreign_plugin
from comminsight.launch.reaction import HangReaction, say
from comminsight.launch.telling import tell_end
from comminsight.launch.watch import Watch
from comminsight.model.manifest import LaunchManifest
from comminsight.model.units import NS_PER_MS, ns_from_seconds
from comminsight.model.verdict import Message
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import live_box_dir
from comminsight.pipeline.manifest import manifest_path, read_manifests, write_manifest
from comminsight.report.catalogue import Catalogue, catalogue

WATCH_INTERVAL_S = 0.2


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
    is_interrupt_ours: bool = False  # Ctrl-C ends the caller too, once the run is closed


def default_run_id() -> str:
    """The id given from outside, else a name from time and pid: unique on this node.

    A run inside of a run is its own: it does not take the id that the outer one set.
    """
    given = "" if os.environ.get("COMMINSIGHT_INJECT") else os.environ.get("COMMINSIGHT_RUN_ID")
    return (
        given
        or os.environ.get("SLURM_JOB_ID")
        or time.strftime("%Y%m%d-%H%M%S", time.localtime()) + f"-{os.getpid()}"
    )


def run_job(request: RunRequest) -> int:
    """The child's exit code (128 + signal when one ended it); the run is in ``request.out``.

    Raises InputError when the job could not be started, UsageError when ``request.out`` holds
    another run; nothing that fails later changes its exit code.
    """
    refuse_other_run(RunPaths(request.out), request.run_id)
    paths = prepare(request.out)
    spool, messages = choose_spool(paths, request.run_id)
    messages = (*messages, *machine_notes())
    environment = recording_environment(
        os.environ, run_id=request.run_id, spool=spool, options=request.recording
    )
    manifest = opening_manifest(request, spool, messages)
    manifest_file = manifest_path(paths, manifest.host, os.getpid())
    with starting(request.out):
        write_manifest(manifest_file, manifest)
    words = catalogue(request.lang)
    say(words.text("run.recording", run_id=request.run_id, out=str(request.out)))
    with child_process.relayed_signals() as relay:
        try:
            job = child_process.start(request.command, environment, request.log)
        except InputError:
            manifest_file.unlink(missing_ok=True)
            raise
        relay.attach(job)
        reaction = HangReaction(job, is_stopping=request.is_stopped_on_hang, lang=request.lang)
        boxes = RunBoxes(request.run_id, spool)
        watch = watch_of(request, paths, boxes, reaction)

        def tick() -> None:
            watch.tick()
            reaction.tick()

        code, signal_number = child_process.wait(job, tick=tick, interval_s=WATCH_INTERVAL_S)
        closing = msgspec.structs.replace(
            manifest, ended_real_ns=time.time_ns(), exit_code=code, exit_signal=signal_number
        )
        close_run(paths, spool, manifest_file, closing, watch, reaction)
        with surviving(watch, words):
            tell_end(paths, words, code, reaction.told)
    if request.is_interrupt_ours and signal.SIGINT in relay.seen:
        raise KeyboardInterrupt
    return code


def watch_of(
    request: RunRequest, paths: RunPaths, boxes: RunBoxes, reaction: HangReaction
) -> Watch:
    """The watch with what the user chose."""
    options = request.recording
    return Watch(
        paths, boxes, options.overdue_limit_s, reaction.react, stack_signal=options.stack_signal
    )


def close_run(
    paths: RunPaths,
    spool: Path,
    manifest_file: Path,
    manifest: LaunchManifest,
    watch: Watch,
    reaction: HangReaction,
) -> None:
    """Archive, collect, and write the last manifest, as far as the disk allows."""
    words = catalogue(reaction.lang)
    with surviving(watch, words):
        reaction.finish(watch.boxes.processes.values())
    with surviving(watch, words):
        watch.finish()
    with surviving(watch, words):
        collect_spool(spool, paths)
    messages = (*manifest.messages, *watch.notes, *reaction.notes)
    with surviving(watch, words):
        write_manifest(
            manifest_file, msgspec.structs.replace(manifest, messages=messages, ends=watch.ends)
        )


@contextlib.contextmanager
def surviving(watch: Watch, words: Catalogue) -> Iterator[None]:
    """What fails in here is a note: the job has ended, and its exit code is not ours to change."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - bulkhead: noted in the manifest and on stderr
        what = f"{type(error).__name__}: {error}"
        watch.note("launch.not_closed", what)
        say(words.text("launch.not_closed", error=what))


@contextlib.contextmanager
def starting(out: Path) -> Iterator[None]:
    """Turns what the disk refuses before the job starts into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write the run directory: {error.strerror}",
            code="unwritable_out",
            reason=error.strerror,
            path=str(out),
            next_step="choose another one with --out",
        ) from error


def refuse_other_run(paths: RunPaths, run_id: str) -> None:
    """Two runs in one directory would be read as one. A restart, and another node of the same run,
    have the same name.

    Raises UsageError naming the run that is there.
    """
    for manifest in read_manifests(paths)[0]:
        if manifest.run_id != run_id:
            raise UsageError(
                f"{paths.root} holds run {manifest.run_id} already",
                code="other_run",
                folder=str(paths.root),
                run_id=manifest.run_id,
                argument=shlex.quote(manifest.run_id),
                next_step=f"another --out, or --run-id {shlex.quote(manifest.run_id)} to record a "
                "restart of that run",
            )


def prepare(out: Path) -> RunPaths:
    """The folders of the run, made.

    Raises InputError when they cannot be.
    """
    paths = RunPaths(out)
    with starting(out):
        paths.create()
    return paths


def choose_spool(paths: RunPaths, run_id: str) -> tuple[Path, tuple[Message, ...]]:
    """(where segments are written while the job runs, notes): the run itself if it is local."""
    if not is_network(paths.root):
        return paths.segments.resolve(), ()
    own = own_folder()
    spool = own / "spool" / f"{run_id}-{os.getpid()}"
    with starting(spool):
        for folder in (own, own / "spool", spool):
            private_folder(folder)
    return spool, (Message("launch.spooled", {"spool": str(spool)}),)


def machine_notes() -> Iterator[Message]:
    """What was found on this machine, and done about it, before the job starts."""
    if n_removed := remove_old(live_box_dir()):
        yield Message("launch.boxes_removed", {"n": n_removed})
    if theirs := foreign_plugin(os.environ):
        yield Message("launch.plugin_kept", {"plugin": theirs})


def private_folder(path: Path) -> None:
    """Make ``path`` ours alone (0700), as the recorder demands of its folders.

    Raises PermissionError when it is a link or somebody else's.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "not a folder of this user", str(path))
    path.chmod(0o700)


def collect_spool(spool: Path, paths: RunPaths) -> None:
    """Move what was spooled elsewhere into the run."""
    if spool == paths.segments.resolve():
        return
    for session in sorted(spool.iterdir()):
        if session.is_symlink() or not session.is_dir():
            continue  # not the recorder's work
        shutil.copytree(session, paths.segments / session.name, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(session, ignore_errors=True)
    with contextlib.suppress(OSError):
        spool.rmdir()


def opening_manifest(
    request: RunRequest, spool: Path, messages: tuple[Message, ...]
) -> LaunchManifest:
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
        messages=messages,
    )


def command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The command after ``--``."""
    return tuple(words[1:] if words[:1] == ["--"] else words)
