"""Opening what was given: an incident file becomes the places it was made from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from comminsight.format.incident import IncidentManifest, is_incident, unpack_incident
from comminsight.pipeline.incident import FILES_FOLDER, RUN_FOLDER


@contextmanager
def opened(path: Path) -> Iterator[list[Path]]:
    """The places to read for ``path``: an incident file is unpacked for as long as it is needed,
    into its run directory, its folder of files, or both; anything else is its own place.

    Raises InputError for an incident file that is cut short, damaged or of an unknown version.
    """
    if not is_incident(path):
        yield [path]
        return
    with tempfile.TemporaryDirectory(prefix="comminsight-") as folder:
        unpack_incident(path, Path(folder))
        places = [Path(folder) / name for name in (RUN_FOLDER, FILES_FOLDER)]
        yield [place for place in places if place.is_dir()]


@contextmanager
def all_opened(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The places of all ``paths`` in their order."""
    with ExitStack() as stack:
        yield [place for path in paths for place in stack.enter_context(opened(path))]


def read_manifest(path: Path) -> IncidentManifest:
    """What an incident file says of itself, its members checked."""
    with tempfile.TemporaryDirectory(prefix="comminsight-") as folder:
        return unpack_incident(path, Path(folder))
