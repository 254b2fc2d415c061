"""Black boxes of living and dead processes, read without ever mapping them.

A mapped box would kill its reader when anybody truncates the file; two reads that agree need no
cooperation of the writer either. Whether the writer lives is asked of the kernel: it holds a
record lock on the file that ends with the process, in whatever pid namespace it runs.

A process must not read its own box this way: closing any descriptor of a file drops the locks
that the process holds on it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from comminsight.capture.process import boot_id, is_running
from comminsight.errors import FormatError, InputError
from comminsight.format.blackbox import BoxData, parse_box
from comminsight.model.hang import Liveness
from comminsight.model.topology import SessionIdentity

MAX_BOX_BYTES = 1 << 28
READ_ATTEMPTS = 3

_FLOCK = struct.Struct("@hhqqi0q")


@dataclass(frozen=True, slots=True)
class BoxReading:
    """A box as found: its content, whether its process lives, and its pid as seen from here
    (-1 when it cannot be seen)."""

    path: Path
    data: BoxData
    liveness: Liveness
    pid: int


def read_box(path: Path | str) -> BoxReading:
    """The box at ``path``; the same call for a living, a dead and an ended process.

    Raises InputError (FormatError for its bytes) naming the file when it cannot be read, is not a
    regular file, or is no whole black box.
    """
    descriptor = _open_box(str(path))
    try:
        holder_pid = _lock_holder(descriptor)
        data = _read_stable(descriptor, str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=str(path)) from error
    finally:
        os.close(descriptor)
    liveness, pid = _judge(data, holder_pid)
    return BoxReading(path=Path(path), data=data, liveness=liveness, pid=pid)


def _open_box(path: str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        hint = "run as the user of the job, or as root" if error.errno == 13 else ""
        message = f"cannot be opened: {error.strerror}"
        raise InputError(message, path=path, next_step=hint) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BOX_BYTES:
        os.close(descriptor)
        raise InputError("is not a black box: no regular file of its size", path=path)
    return descriptor


def _read_stable(descriptor: int, path: str) -> BoxData:
    """Two reads, compared; again when the JSON was being rewritten just then."""
    for attempt in range(READ_ATTEMPTS):
        size_bytes = os.fstat(descriptor).st_size
        first = os.pread(descriptor, size_bytes, 0)
        second = os.pread(descriptor, size_bytes, 0)
        try:
            return parse_box(first, second, path=path)
        except FormatError:
            if first == second or attempt + 1 == READ_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _lock_holder(descriptor: int) -> int | None:
    """Pid of the process that holds the owner's lock, 0 if it has none here, None without lock."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        lock_type, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:  # a file system without locks: /proc decides
        return None
    return None if lock_type == fcntl.F_UNLCK else int(pid)


def _judge(data: BoxData, holder_pid: int | None) -> tuple[Liveness, int]:
    """The lock decides; without one the process table does, for boxes of this boot only."""
    seen, pid = process_liveness(data.identity)
    if holder_pid is not None:
        seen, pid = Liveness.ALIVE, holder_pid if holder_pid > 0 else -1
    return (Liveness.CLOSED if data.is_closed else seen), pid


def process_liveness(identity: SessionIdentity) -> tuple[Liveness, int]:
    """Whether the process of a session runs on this node, and its pid (-1 when it does not).

    UNKNOWN for a session of another node or of an earlier boot.
    """
    if identity.boot_id != boot_id():
        return Liveness.UNKNOWN, -1
    if is_running(identity.pid, identity.pid_start_ticks):
        return Liveness.ALIVE, identity.pid
    return Liveness.DEAD, -1
