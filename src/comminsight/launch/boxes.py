"""The black boxes of one run on this node: found, polled, archived when their owner is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from comminsight.capture.box import BoxReading, process_liveness, read_box
from comminsight.capture.discovery import SessionPaths, discover
from comminsight.capture.process import is_running
from comminsight.errors import FormatError, InputError
from comminsight.format.identity import MAX_JSON_BYTES, StreamHeader, parse_header_json
from comminsight.format.layout import BOX_HEADER_BYTES, BOX_HEADER_DTYPE, BOX_MAGIC
from comminsight.model.hang import Liveness
from comminsight.model.units import NS_PER_S
from comminsight.model.verdict import Message
from comminsight.pipeline.load import box_dirs

OLD_S = 24 * 3600
SETTLE_S = 3.0
POLL_S = 0.05


@dataclass(slots=True)
class RunBoxes:
    """Boxes of the processes that record run ``run_id`` into ``spool``; a file is asked once.

    Both must agree: steps of one allocation, run at the same time, share the scheduler's id.
    ``processes`` are (session_id, pid, start_ticks) by box.
    """

    run_id: str
    spool: Path
    folders: tuple[Path, ...] = ()
    processes: dict[Path, tuple[str, int, int]] = field(default_factory=dict)
    _foreign: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folders = self.folders or box_dirs(self.spool)

    def paths(self) -> list[Path]:
        """Boxes of the run that are there now."""
        return [path for path in box_files(self.folders) if self._belongs(path)]

    def sessions(self) -> list[SessionPaths]:
        """The sessions that own these boxes, with their segments where they have any."""
        ours = set(self.paths())
        return [
            entry for entry in discover(self.spool, *self.folders).sessions if entry.box in ours
        ]

    def _belongs(self, path: Path) -> bool:
        if path in self.processes or path in self._foreign:
            return path in self.processes
        try:
            stated = stated_header(path)
            who = stated.identity
            spool = stated.environment.get("COMMINSIGHT_SPOOL", str(self.spool))
            if who.run_id != self.run_id or Path(spool) != self.spool:
                self._foreign.add(path)
                return False
            pid = read_box(path).pid
        except InputError:
            return False  # perhaps still being made: ask again
        self.processes[path] = (who.session_id, pid, who.pid_start_ticks)
        return True

    def n_overdue(self) -> int:
        """Ops in flight beyond the limit, over all boxes, from their header pages alone."""
        return sum(overdue_slots(path) for path in self.paths())

    def settle(self) -> None:
        """Wait for owners that are just dying, but not long: one may have been left to live."""
        self.paths()  # also of processes that came since the last look
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s and any(
            is_running(pid, ticks) for _, pid, ticks in self.processes.values()
        ):
            time.sleep(POLL_S)

    def archive(self, target: Path) -> list[Message]:
        """Copy every box into the run; unlink those whose process is gone. Notes on failures."""
        notes = []
        for path in self.paths():
            try:
                liveness = read_box(path).liveness
                copy_whole(path, target / path.name)
                if liveness is not Liveness.ALIVE:
                    path.unlink()
            except (InputError, OSError) as error:
                notes.append(Message("launch.box_not_archived", {"error": str(error)}))
        for folder in self.folders[1:]:
            with contextlib.suppress(OSError):  # not there, or a living process keeps a box in it
                folder.rmdir()
        return notes


def box_files(folders: Iterable[Path]) -> list[Path]:
    """Files named like a box; a folder that is missing or closed to us holds none."""
    found: list[Path] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            found += sorted(folder.glob("*.box"))
    return found


def remove_old(folder: Path) -> int:
    """How many boxes were removed: ours, of dead processes of which no sign is younger than a day.

    They are of launchers that were killed, and of jobs that had none.
    """
    n_removed = 0
    for path in box_files([folder]):
        with contextlib.suppress(OSError, InputError):
            found = path.lstat()
            is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if is_ours and time.time_ns() - found.st_mtime_ns > OLD_S * NS_PER_S and is_left(path):
                path.unlink()
                n_removed += 1
    return n_removed


def is_left(path: Path) -> bool:
    """True when the process that owned the box is known to be gone for a day."""
    box: BoxReading = read_box(path)
    is_gone = process_liveness(box.data.identity)[0] is Liveness.DEAD
    age_ns = time.monotonic_ns() - box.data.heartbeat_mono_ns
    return is_gone and box.liveness is not Liveness.ALIVE and age_ns > OLD_S * NS_PER_S


def copy_whole(source: Path, target: Path) -> None:
    """Copy the file, or leave nothing: half a box would hide the whole one."""
    try:
        shutil.copyfile(source, target)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def stated_header(path: Path) -> StreamHeader:
    """Who writes a box, by its first pages alone: a node may hold many that are not ours.

    Raises InputError when that does not read.
    """
    page = head_bytes(path, 0, BOX_HEADER_BYTES)
    if len(page) < BOX_HEADER_BYTES or not page.startswith(BOX_MAGIC):
        raise FormatError("is not a black box", path=str(path))
    head = np.frombuffer(page, BOX_HEADER_DTYPE)[0]
    offset_bytes, n_bytes = int(head["json_offset"]), int(head["json_bytes"])
    text = head_bytes(path, offset_bytes, min(n_bytes, MAX_JSON_BYTES))
    return parse_header_json(text, path=str(path), offset_bytes=offset_bytes)


def overdue_slots(path: Path) -> int:
    """The header's count of overdue slots; 0 when it cannot be read."""
    page = head_bytes(path, 0, BOX_HEADER_BYTES)
    if len(page) < BOX_HEADER_BYTES:
        return 0
    return int(np.frombuffer(page, BOX_HEADER_DTYPE)[0]["overdue_slots"])


def head_bytes(path: Path, offset_bytes: int, n_bytes: int) -> bytes:
    """Bytes of a box; none when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, n_bytes, offset_bytes)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(descriptor)
