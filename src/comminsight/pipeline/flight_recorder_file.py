"""One file as a Flight Recorder dump, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from comminsight.errors import InputError
from comminsight.format.expanding import expanded_bytes
from comminsight.format.flight_recorder import (
    NEXT_STEP,
    FlightDump,
    is_flight_recorder,
    parse_flight_recorder,
)
from comminsight.format.pickle_layouts import Layouts
from comminsight.format.regular_file import read_regular
from comminsight.format.safe_pickle import MAX_BYTES


class BadDumpError(Exception):
    """A dump tells nothing; ``error`` says so to whoever gave nothing else."""

    def __init__(self, reason: str, error: InputError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


def read_dump(path: Path, layouts: Layouts, *, is_given: bool = True) -> FlightDump | None:
    """The dump at ``path``; None for a file that looks like none and was not given by name.

    Raises BadDumpError for what does not read.
    """
    data = _read(path)
    if not is_given and not is_flight_recorder(data):
        return None
    try:
        return parse_flight_recorder(data, path=str(path), layouts=layouts)
    except InputError as error:
        reason = "unread.damaged" if is_flight_recorder(data) else "unread.unknown_form"
        raise BadDumpError(reason, error) from error


def plain_dump(path: Path, layouts: Layouts) -> FlightDump:
    """The dump at ``path``; raises InputError for all else, whatever is wrong with it."""
    try:
        dump = read_dump(path, layouts, is_given=False)
    except BadDumpError as bad:
        raise bad.error from bad
    if dump is None:
        raise InputError("is no dump", path=str(path), next_step=NEXT_STEP)
    return dump


def _read(path: Path) -> bytes:
    """What the file holds, expanded; raises InputError for what is no file, given by name."""
    try:
        data = read_regular(path, MAX_BYTES + 1)
    except OSError as error:
        raise BadDumpError("unread.unreadable", unreadable(path, error)) from error
    if data is None:
        no_file = InputError("is no file", path=str(path), next_step=NEXT_STEP)
        raise BadDumpError("unread.unreadable", no_file)
    try:
        return expanded_bytes(data, max_bytes=MAX_BYTES, path=str(path), next_step=NEXT_STEP)
    except InputError as error:
        raise BadDumpError("unread.damaged", error) from error


def unreadable(path: Path, error: OSError) -> InputError:
    """That the system does not give the file."""
    return InputError(f"cannot be read: {error.strerror}", path=str(path), next_step=NEXT_STEP)
