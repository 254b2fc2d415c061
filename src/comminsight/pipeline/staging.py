"""Folders in which a rebuild writes aside before it puts its files in place.

One per process that works, locked while it does: whoever clears up removes those that nobody
holds. Several rebuilds may thus write into one folder at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comminsight.pipeline.layout import unwritable_run

STAGING_PREFIX = ".part-"
_LOCK = "lock"


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A place of this process in the folder; it is gone behind the block.

    Raises InputError when the folder cannot be written.
    """
    place = folder / f"{STAGING_PREFIX}{socket.gethostname()}-{os.getpid()}"
    try:
        lock = _taken(place)
    except OSError as error:
        raise unwritable_run(place, error) from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def clear_stale(folder: Path) -> None:
    """Removes what processes left that were killed."""
    for place in folder.glob(f"{STAGING_PREFIX}*"):
        try:
            lock = _opened(place)
        except OSError:  # gone meanwhile, or not ours to write
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        except OSError:  # held, or a file system that has no locks and cannot tell
            pass
        finally:
            os.close(lock)


def _taken(place: Path) -> int:
    """The lock on the place, held by nobody else; it may have been cleared while it was made."""
    while True:
        place.mkdir(parents=True, exist_ok=True)
        try:
            lock = _opened(place)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # no locks there: then nobody clears it either
            return lock
        if _is_at(lock, place / _LOCK):
            return lock
        os.close(lock)


def _opened(place: Path) -> int:
    return os.open(place / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)


def _is_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
