"""Reading and writing launch manifests, atomically."""

from __future__ import annotations

from pathlib import Path

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.model.manifest import LaunchManifest
from comminsight.pipeline.layout import RunPaths, write_whole

PREFIX = "launch-"


def manifest_path(paths: RunPaths, host: str, launcher_pid: int) -> Path:
    """File of one launcher's manifest."""
    return paths.metadata / f"{PREFIX}{host}-{launcher_pid}.json"


def write_manifest(path: Path, manifest: LaunchManifest) -> None:
    """Replace the manifest in one step, so that a reader never sees half of it."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read_manifests(paths: RunPaths) -> tuple[list[LaunchManifest], list[str]]:
    """Manifests in order of their start, and the names of files that are not manifests."""
    manifests, unreadable = [], []
    for path in sorted(paths.metadata.glob(f"{PREFIX}*.json")):
        try:
            manifests.append(read_document(path.read_bytes(), LaunchManifest))
        except (InputError, OSError):
            unreadable.append(path.name)
    return sorted(manifests, key=lambda m: m.started_real_ns), unreadable
