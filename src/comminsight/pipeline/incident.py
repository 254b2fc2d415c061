"""Incident files: what a colleague elsewhere needs to judge a job again, without its names.

Everything is put together in a folder first, names masked, and becomes one tar from there.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from comminsight import __version__
from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.format.document import document_bytes
from comminsight.format.incident import (
    MAGIC,
    VERSION,
    IncidentManifest,
    member_of,
    write_incident,
)
from comminsight.model.manifest import LaunchManifest
from comminsight.model.report import RunReport
from comminsight.pipeline.incident_members import Masking, Part, PartKind, written_part
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import LoadedRun, find_sessions
from comminsight.pipeline.masking import Masker
from comminsight.pipeline.moment import Moment, now_ns, read_moment, write_moment

RUN_FOLDER, FILES_FOLDER = "run", "files"
REPORT = "report.json"
MAX_DEPTH = 6
_ODD = re.compile(r"[^\w.@+=,~ -]")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as the incident takes it: where it lies, and what reading it found."""

    paths: RunPaths
    manifests: Sequence[LaunchManifest]
    loaded: LoadedRun
    end: str


@dataclass(slots=True)
class _Staged:
    """What is in the folder so far."""

    times: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


def make_incident(
    out: Path,
    report: RunReport,
    *,
    run: RecordedRun | None = None,
    files: Sequence[Path] = (),
    keep_names: bool = False,
) -> IncidentManifest:
    """Writes ``out`` and returns what it says of itself. ``report`` is what was judged of the run
    and of the files and folders in ``files``; with ``keep_names`` nothing is masked.

    Raises InputError where ``out`` is there already or cannot be written.
    """
    if out.exists():
        raise InputError("is there already", path=str(out), next_step="give another name")
    masking = Masking(None if keep_names else Masker())
    parts = [*(_run_parts(run) if run else ()), *_file_parts(files)]
    for part in parts:
        masking.learn(part)
    masking.learn_report(report)
    with tempfile.TemporaryDirectory(prefix="comminsight-incident-", dir=_parent(out)) as place:
        folder, staged = Path(place), _Staged()
        for part in parts:
            _stage(part, masking, folder, staged)
        if run is not None:
            moment_paths = RunPaths(folder / RUN_FOLDER)
            moment_paths.create()
            write_moment(moment_paths, _moment(run))
        (folder / REPORT).write_bytes(masking.document(document_bytes(report)))
        manifest = _manifest(folder, staged, masking, report)
        _write(out, folder, manifest)
    return manifest


def _parent(out: Path) -> Path:
    parent = out.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(
            "is in a folder that cannot be written", path=str(out), next_step="give another place"
        )
    return parent


def _manifest(
    folder: Path, staged: _Staged, masking: Masking, report: RunReport
) -> IncidentManifest:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return IncidentManifest(
        magic=MAGIC,
        version=VERSION,
        made_by=f"comminsight {__version__}",
        members=tuple(member_of(folder, name, staged.times.get(name, 0)) for name in names),
        is_masked=masking.masker is not None,
        masked=masking.masker.counts if masking.masker is not None else {},
        left_out=dict(staged.left_out),
        verdicts=tuple(verdict.cause.value for verdict in report.verdicts),
    )


def _write(out: Path, folder: Path, manifest: IncidentManifest) -> None:
    whole = folder.with_suffix(".tar")
    try:
        with whole.open("xb") as stream:
            write_incident(stream, folder, manifest)
        os.replace(whole, out)
    except OSError as error:
        whole.unlink(missing_ok=True)
        said = f"cannot be written: {error.strerror}"
        raise InputError(
            said, path=str(out), next_step="make room or give another place"
        ) from error


def _stage(part: Part, masking: Masking, folder: Path, staged: _Staged) -> None:
    name = masking.name(part.name)
    place = folder / name
    n_same = 1
    while place.exists():  # two names that differ only in what is masked
        n_same += 1
        place = folder / f"{name}.{n_same}"
    try:
        data = written_part(part, masking)
    except (InputError, OSError):
        staged.left_out["unreadable"] += 1
        return
    if data is None:
        staged.left_out["no_known_form"] += 1
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    staged.times[str(place.relative_to(folder))] = part.mtime_ns


# what is put in


def _run_parts(run: RecordedRun) -> list[Part]:
    """Segments and boxes of the run's own sessions, wherever they lie; manifests and hangs."""
    found, _ = find_sessions(run.paths, run.manifests, is_segments_only=False)
    others = {session.identity.session_id for session in run.loaded.other_runs}
    parts = []
    for entry in found:
        if entry.session_id in others:
            continue
        if entry.segment_dir is not None:
            folder = f"{RUN_FOLDER}/inspector_logs/{entry.session_id}"
            parts += _all_in(entry.segment_dir, folder, PartKind.SEGMENT, "*.ciseg*")
        if entry.box is not None:
            name = f"{RUN_FOLDER}/blackbox/{entry.box.name}"
            parts.append(Part(name, entry.box, PartKind.BOX))
    metadata, hangs = run.paths.metadata, run.paths.hangs
    parts += _all_in(metadata, f"{RUN_FOLDER}/metadata", PartKind.TEXT, "launch-*.json")
    parts += _all_in(hangs, f"{RUN_FOLDER}/hangs", PartKind.TEXT, "*-*.*")
    calibration = run.paths.calibration
    return parts + _all_in(calibration, f"{RUN_FOLDER}/calibration", PartKind.TEXT, "*.json")


def _all_in(folder: Path, name: str, kind: PartKind, pattern: str) -> list[Part]:
    return [
        Part(f"{name}/{_ODD.sub('_', path.name)}", path, kind)
        for path in sorted(folder.glob(pattern))
        if path.is_file() and not path.is_symlink()
    ]


def _file_parts(paths: Iterable[Path]) -> list[Part]:
    """The files given and those in given folders; a number keeps folders of equal names apart."""
    parts = []
    for number, path in enumerate(paths, start=1):
        if path.is_dir():
            files = [(one, str(one.relative_to(path))) for one in _below(path, MAX_DEPTH)]
        else:
            files = [(path, path.name)]
        for one, name in files:
            safe = "/".join(_ODD.sub("_", part).lstrip(".") or "_" for part in name.split("/"))
            parts.append(Part(f"{FILES_FOLDER}/{number}/{safe}", one, PartKind.TEXT))
    return parts


def _below(folder: Path, depth: int) -> list[Path]:
    found: list[Path] = []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return [folder]  # it is counted as one that does not read
    for one in entries:
        if one.name.startswith("."):
            continue
        try:
            mode = one.lstat().st_mode
        except OSError:  # its folder tells names and no more
            found.append(one)
            continue
        if stat.S_ISREG(mode):
            found.append(one)
        elif stat.S_ISDIR(mode) and depth > 1:
            found += _below(one, depth - 1)
    return found


def _moment(run: RecordedRun) -> Moment:
    """What the nodes tell now; of a copy, what they told when it was made."""
    known = read_moment(run.paths)
    if known is not None:
        return known
    loaded = run.loaded
    every: tuple[SessionData, ...] = (
        *loaded.earlier_launches, *loaded.earlier_lives, *loaded.without_rank, *loaded.sessions,
    )  # fmt: skip
    # ranks of one process are sessions of their own, with the rank behind a dot
    named = [(name, s) for s in every for name in _names(s.identity.session_id)]
    mono_ns, real_ns = now_ns(None)
    return Moment(
        observed_mono_ns=mono_ns,
        observed_real_ns=real_ns,
        end=run.end,
        liveness={name: session.liveness for name, session in named},
        pids={name: session.pid for name, session in named},
    )


def _names(session_id: str) -> tuple[str, str]:
    return session_id, session_id.partition(".")[0]


def without_names(report: RunReport) -> list[tuple[object, ...]]:
    """What two reports on the same evidence agree in, names aside."""
    return [
        (
            verdict.rule, verdict.cause, verdict.confidence, verdict.culprits, verdict.victims,
            verdict.comm_id, verdict.first_step, verdict.last_step,
            [said.code for said in verdict.missing],
            msgspec.structs.replace(verdict.coverage, tally={}),
        )
        for verdict in report.verdicts
    ]  # fmt: skip
