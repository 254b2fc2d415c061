"""What a folder is to the recorder: whose, how open, how much room. Nothing in it is changed."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class FolderKind(StrEnum):
    """What stands at the path."""

    MISSING = "missing"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"
    CLOSED = "closed"  # a folder above it may not be entered


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """``free_bytes`` -1 and ``is_writable`` False where it cannot be told or done.

    Of a folder that is missing, both are those of the folder in which it would be made.
    """

    path: str
    kind: FolderKind
    is_own: bool = False
    is_open_to_others: bool = False  # group or world may write
    is_writable: bool = False
    free_bytes: int = -1


def look_at(path: Path, *, follows_links: bool = False) -> FolderFacts:
    """The facts of ``path``; writes one file without a name, in an existing folder only."""
    try:
        found = path.stat(follow_symlinks=follows_links)
    except FileNotFoundError:
        return _missing(path)
    except OSError:
        return FolderFacts(str(path), FolderKind.CLOSED)
    kind = _kind(found.st_mode)
    return FolderFacts(
        str(path),
        kind,
        is_own=found.st_uid == os.geteuid(),
        is_open_to_others=bool(found.st_mode & 0o022),
        is_writable=kind is FolderKind.FOLDER and _takes_a_file(path),
        free_bytes=_free_bytes(path),
    )


def _missing(path: Path) -> FolderFacts:
    parent = next((p for p in path.absolute().parents if p.is_dir()), Path("/"))
    return FolderFacts(
        str(path),
        FolderKind.MISSING,
        is_own=True,
        is_writable=os.access(parent, os.W_OK | os.X_OK),
        free_bytes=_free_bytes(parent),
    )


def _kind(mode: int) -> FolderKind:
    if stat.S_ISLNK(mode):
        return FolderKind.LINK
    return FolderKind.FOLDER if stat.S_ISDIR(mode) else FolderKind.OTHER


def _takes_a_file(path: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def _free_bytes(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize
