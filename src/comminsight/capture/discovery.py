"""Which sessions left something in a run directory, or are writing on this node."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from comminsight.format.identity import session_id
from comminsight.format.layout import BOX_HEADER_BYTES, BOX_HEADER_DTYPE, BOX_MAGIC

SEGMENTS_FOLDER = "inspector_logs"
BOXES_FOLDER = "blackbox"

_SEGMENT_NAME = re.compile(r"(\d{1,9})\.ciseg(\.open)?", re.ASCII)
_SESSION_NAME = re.compile(r"[0-9A-Za-z]{0,8}-\d+-\d+(\.\d+)?", re.ASCII)  # .2: after exec


@dataclass(frozen=True, slots=True)
class SessionPaths:
    """Where one session's evidence lies; either part may be missing."""

    session_id: str
    segment_dir: Path | None = None
    box: Path | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """Sessions by name, and files that look like evidence but cannot be attributed."""

    sessions: tuple[SessionPaths, ...]
    unreadable: tuple[Path, ...] = field(default=())


def discover_run(run_dir: Path | str) -> Discovery:
    """The sessions of a run directory."""
    root = Path(run_dir)
    return discover(root / SEGMENTS_FOLDER, root / BOXES_FOLDER)


def discover(segments_root: Path | None, *box_dirs: Path) -> Discovery:
    """The sessions with segments under ``segments_root`` or a box in one of ``box_dirs``.

    Folders that do not exist hold nothing. Of two boxes of one session the later created counts.
    """
    found: dict[str, SessionPaths] = {}
    for folder in _children(segments_root):
        if _SESSION_NAME.fullmatch(folder.name) and folder.is_dir():
            found[folder.name] = SessionPaths(folder.name, segment_dir=folder)
    boxes, unreadable = _boxes(box_dirs)
    for name, box in boxes.items():
        segment_dir = found[name].segment_dir if name in found else None
        found[name] = SessionPaths(name, segment_dir=segment_dir, box=box)
    return Discovery(tuple(found[name] for name in sorted(found)), tuple(unreadable))


def segment_files(segment_dir: Path | None) -> list[tuple[int, Path]]:
    """(number, path) of the segments of one session in order; a sealed file hides its open name.

    An open one without a byte is left out: its writer makes it at this moment, or was killed then.
    """
    files: dict[int, Path] = {}
    for path in _children(segment_dir):
        match = _SEGMENT_NAME.fullmatch(path.name)
        if match is None or (match[2] and _is_unbegun(path)):
            continue
        if match[2] is None or int(match[1]) not in files:
            files[int(match[1])] = path
    return sorted(files.items())


def _is_unbegun(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False  # it has just been renamed, or the reader will say what is wrong
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def _boxes(box_dirs: tuple[Path, ...]) -> tuple[dict[str, Path], list[Path]]:
    newest: dict[str, tuple[int, Path]] = {}
    unreadable = []
    for path in (path for folder in box_dirs for path in _children(folder)):
        if path.suffix != ".box":
            continue
        stated = _box_owner(path)
        if stated is None:
            unreadable.append(path)
            continue
        name, created_ns = stated
        newest[name] = max(newest.get(name, (-1, path)), (created_ns, path))
    return {name: path for name, (_, path) in newest.items()}, unreadable


def _box_owner(path: Path) -> tuple[str, int] | None:
    """(session, creation time) as the header page says; None for anything that is no box."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        page = os.pread(descriptor, BOX_HEADER_BYTES, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(page) < BOX_HEADER_BYTES or not page.startswith(BOX_MAGIC):
        return None
    head = np.frombuffer(page, BOX_HEADER_DTYPE)[0]
    boot = head["boot_id"].decode("ascii", "replace")
    name = session_id(boot, int(head["pid"]), int(head["pid_start_ticks"]))
    return name, int(head["created_mono_ns"])


def closed_folders(folders: Iterable[Path | None]) -> list[str]:
    """Folders that are there and cannot be listed, each with the reason: what they hold is lost to
    the reader, and must not look as if nothing had been recorded."""
    found = []
    for folder in folders:
        try:
            next(iter(folder.iterdir() if folder is not None else ()), None)
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(f"{folder}: cannot be listed: {error.strerror}")
    return found


def _children(folder: Path | None) -> list[Path]:
    """Entries of a folder by name; none for a folder that is missing or closed to us."""
    try:
        return sorted(folder.iterdir()) if folder is not None else []
    except OSError:
        return []
