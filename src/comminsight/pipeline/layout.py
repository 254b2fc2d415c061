"""Where things are in a run directory; the one place that knows the names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from comminsight.errors import InputError


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folders of one run directory."""

    root: Path

    @property
    def segments(self) -> Path:
        """Raw records, one folder per session."""
        return self.root / "inspector_logs"

    @property
    def boxes(self) -> Path:
        """Black boxes of processes that have ended."""
        return self.root / "blackbox"

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
    def verdicts(self) -> Path:
        """Reports, derived."""
        return self.root / "verdicts"

    def create(self) -> None:
        """Make the folders that a running job writes to."""
        for folder in (self.segments, self.boxes, self.hangs, self.metadata):
            folder.mkdir(parents=True, exist_ok=True)


def run_paths(path: str | Path) -> RunPaths:
    """The paths of an existing run directory.

    Raises InputError when the directory is missing or is not a run.
    """
    root = Path(path)
    if not root.exists():
        raise InputError(
            "no such directory",
            path=str(root),
            next_step="give the directory that `comminsight run` printed",
        )
    if not root.is_dir():
        raise InputError(
            "not a directory", path=str(root), next_step="give the run directory, not a file in it"
        )
    paths = RunPaths(root)
    if not (paths.segments.is_dir() or paths.boxes.is_dir()):
        raise InputError(
            "not a CommInsight run: neither inspector_logs/ nor blackbox/ is in it",
            path=str(root),
            next_step="give the directory that `comminsight run` printed",
        )
    return paths
