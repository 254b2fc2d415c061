"""Where things are in a run directory, the one place that knows the names; how files get there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from comminsight.capture.discovery import (
    BOXES_FOLDER,
    SEGMENTS_FOLDER,
    SessionPaths,
    discover,
    segment_files,
)
from comminsight.errors import InputError

FALLBACK_FOLDER = "boxes"  # in the spool, as the recorder has it


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folders of one run directory; ``is_spool``: what recorders wrote lies there directly;
    ``is_tables``: they hold an export, without what recorders wrote."""

    root: Path
    is_spool: bool = False
    is_tables: bool = False

    @property
    def segments(self) -> Path:
        """Raw records, one folder per session."""
        return self.root if self.is_spool else self.root / SEGMENTS_FOLDER

    @property
    def boxes(self) -> Path:
        """Black boxes of processes that have ended."""
        return self.root if self.is_spool else self.root / BOXES_FOLDER

    @property
    def hangs(self) -> Path:
        """Hang evidence, one file per event."""
        return self.root / "hangs"

    @property
    def metadata(self) -> Path:
        """Manifests of the launchers."""
        return self.root / "metadata"

    @property
    def steps(self) -> Path:
        """Step summaries, derived."""
        return self.root / "steps"

    @property
    def calibration(self) -> Path:
        """Corrections of step numbers, and who applied them when."""
        return self.root / "calibration"

    @property
    def measures(self) -> Path:
        """Waits and blame by range of steps, derived."""
        return self.root / "measures"

    @property
    def verdicts(self) -> Path:
        """Reports, derived."""
        return self.root / "verdicts"

    def create(self) -> None:
        """Make the folders that a running job writes to."""
        for folder in (self.segments, self.boxes, self.hangs, self.metadata):
            folder.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file in one step: a reader sees the old one or the new one, never half of it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def unwritable_run(path: Path, error: OSError) -> InputError:
    """That a run does not take what is rebuilt from it."""
    return InputError(
        f"cannot be written: {error.strerror}", path=str(path),
        code="unwritable_run", reason=error.strerror,
        next_step="copy the run to a place where you may write, and rebuild it there",
    )  # fmt: skip


def run_paths(path: str | Path) -> RunPaths:
    """The paths of an existing run directory, or of a folder that recorders wrote into directly:
    a spool, or one of black boxes.

    Raises InputError when the directory is missing or is not a run.
    """
    root = Path(path)
    if not root.exists():
        raise InputError(
            "no such directory",
            code="no_directory",
            path=str(root),
            next_step="give the directory that `comminsight run` printed",
        )
    if not root.is_dir():
        raise InputError(
            "not a directory",
            path=str(root),
            code="no_folder",
            next_step="give the run directory, not a file in it",
        )
    paths = RunPaths(root)
    if paths.segments.is_dir() or paths.boxes.is_dir():
        return paths
    found = discover(root, root, root / FALLBACK_FOLDER).sessions
    if not any(map(is_recorded, found)):
        raise InputError(
            "not a CommInsight run: neither inspector_logs/ nor blackbox/ is in it, nor what "
            "recorders write (folders of sessions, *.box)",
            code="no_run",
            path=str(root),
            next_step="give the directory that `comminsight run` printed, or COMMINSIGHT_SPOOL; "
            "logs and dumps go to `comminsight diagnose`",
        )
    return RunPaths(root, is_spool=True)


def is_recorded(session: SessionPaths) -> bool:
    """True when something of it can be read, not only a folder of such a name."""
    return session.box is not None or bool(segment_files(session.segment_dir))
