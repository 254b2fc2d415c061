"""The files of an import, kept as evidence under the run: as they are, where they were to each
other, with size, digest and time of change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from comminsight.errors import InputError
from comminsight.format.regular_file import open_regular
from comminsight.model.imported import ImportedFile

EVIDENCE_FOLDER = "evidence"
PIECE_BYTES = 1 << 20
NEXT_STEP = "give files that nobody changes or removes meanwhile"


def kept_names(paths: Sequence[Path]) -> list[PurePosixPath]:
    """Where each file stands under ``evidence/``: its place below the folder that all have in
    common, and that folder's name. The names of folders may tell a host or a rank."""
    places = [Path(os.path.abspath(path)) for path in paths]  # links keep their names
    common = Path(os.path.commonpath([place.parent for place in places]))
    return [PurePosixPath(common.name, *place.relative_to(common).parts) for place in places]


def keep_sources(root: Path, sources: Iterable[tuple[Path, str]]) -> tuple[ImportedFile, ...]:
    """Copies the files (with their form) to ``root/evidence``.

    Raises InputError for one that cannot be read to its end.
    """
    found = list(sources)
    names = kept_names([path for path, _ in found])
    return tuple(
        _keep(path, root / EVIDENCE_FOLDER, name, form)
        for (path, form), name in zip(found, names, strict=True)
    )


def _keep(path: Path, folder: Path, name: PurePosixPath, form: str) -> ImportedFile:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size_bytes = hashlib.sha256(), 0
    try:
        opened = open_regular(path)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise InputError(why, path=str(path), next_step=NEXT_STEP) from error
    if opened is None:
        raise InputError("is no longer a file", path=str(path), next_step=NEXT_STEP)
    with opened as stream, target.open("xb") as copy:
        while piece := _piece(stream, path):
            digest.update(piece)
            copy.write(piece)
            size_bytes += len(piece)
        found = os.fstat(stream.fileno())
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))  # log times may hang on it
    return ImportedFile(path=str(name), form=form, size_bytes=size_bytes, sha256=digest.hexdigest())


def _piece(stream: BinaryIO, path: Path) -> bytes:
    try:
        return stream.read(PIECE_BYTES)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise InputError(why, path=str(path), next_step=NEXT_STEP) from error
