"""Answers of NCCL's RAS in a run: the bytes as they came, beside the hang event they belong to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from comminsight.errors import InputError
from comminsight.format.ras import MAX_ANSWER_BYTES, parse_ras
from comminsight.model.hang import HangEvent
from comminsight.model.ras import RasForm, RasReading
from comminsight.pipeline.layout import RunPaths, write_whole

PREFIX = "ras-"
SUFFIX = {RasForm.JSON: ".json", RasForm.TEXT: ".txt"}
NAME = re.compile(rf"{PREFIX}(\d{{1,18}})\.(?:json|txt)", re.ASCII)


def write_ras(paths: RunPaths, form: RasForm, data: bytes, *, observed_mono_ns: int) -> Path:
    """The new file; ``observed_mono_ns`` names the hang event."""
    path = paths.hangs / f"{PREFIX}{observed_mono_ns}{SUFFIX[form]}"
    write_whole(path, data)
    return path


def read_kept_ras(paths: RunPaths) -> tuple[list[RasReading], list[str]]:
    """Answers in the order of their events, and the names of files that are none."""
    readings, unreadable = [], []
    for path in sorted(paths.hangs.glob(f"{PREFIX}*")):
        if (named := NAME.fullmatch(path.name)) is None:
            continue  # one that is just being written
        try:
            readings.append(read_ras(path, observed_mono_ns=int(named[1])))
        except InputError:
            unreadable.append(path.name)
    return sorted(readings, key=lambda reading: reading.observed_mono_ns), unreadable


def read_ras(path: Path, *, observed_mono_ns: int = 0) -> RasReading:
    """The answer in one file.

    Raises InputError when the file cannot be read or is no answer.
    """
    try:
        with _opened(path) as stream:
            data = stream.read(MAX_ANSWER_BYTES + 1)
            about = os.fstat(stream.fileno())
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", path=str(path), code="ras_unread",
            reason=error.strerror,
            next_step="give the file that the output of ncclras was kept in",
        ) from error  # fmt: skip
    answer = parse_ras(data, path=str(path))
    return RasReading(
        answer=answer, source=path.name, observed_mono_ns=observed_mono_ns,
        written_ns=about.st_mtime_ns if stat.S_ISREG(about.st_mode) else 0,
    )  # fmt: skip


def _opened(path: Path) -> BinaryIO:
    """The file, or a pipe that a shell hands over (``/dev/fd/63``): that has its writer.

    It is looked at once it is open, since it may have been exchanged before. Raises InputError for
    any other pipe.
    """
    is_handed_over = Path(os.path.realpath(path)).parts[:2] == ("/", "proc")
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if is_handed_over else os.O_NONBLOCK)
    descriptor = os.open(path, flags)
    if is_handed_over or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise InputError(
        "is a named pipe, and reading it may never end", path=str(path), code="ras_pipe",
        next_step="keep the output of ncclras in a file, or give it as <(ncclras ...)",
    )  # fmt: skip


def ras_of(
    given: Sequence[RasReading], kept: Sequence[RasReading], lasting: Sequence[HangEvent]
) -> tuple[RasReading, ...]:
    """What may speak about the run as it is judged: files given by hand, and the last answer that
    was asked for while a hang that lasts was seen. One of a stall that is over says nothing."""
    asked_for = {event.observed_mono_ns for event in lasting}
    fitting = [reading for reading in kept if reading.observed_mono_ns in asked_for]
    return (*fitting[-1:], *given)
