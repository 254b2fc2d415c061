"""Files from outside, opened so that none of them can keep the reader waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO | None:
    """The file open for reading; None for a pipe, a device, a socket or a folder.

    What stands at the path is looked at once it is open: it may have been exchanged before, and a
    pipe that nobody writes to is opened without waiting. Raises OSError where it does not open.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def read_regular(path: Path, max_bytes: int) -> bytes | None:
    """The first ``max_bytes`` of a file; None and OSError as ``open_regular``."""
    stream = open_regular(path)
    if stream is None:
        return None
    with stream:
        return stream.read(max_bytes) or b""
