"""Corrections and their history on disk: every file is written once and never changed.

    calibration/correction-<first 16 of its sha256>.json    the numbers, by content
    calibration/history-000001.json                         one file per apply or clear
    calibration/correction-<16>-<8 of its own>.changed      one that somebody changed, set aside

The last entry that reads decides the state of the run. Each entry names the hash of the one before,
so that a change of the past shows.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.model.calibration import Correction, HistoryEntry
from comminsight.pipeline.layout import RunPaths

_ENTRY = re.compile(r"history-(\d{6})\.json", re.ASCII)
_CORRECTION = re.compile(r"correction-[0-9a-f]{16}\.json", re.ASCII)
_TRIES = 64  # of others that write an entry at the same moment


def write_correction(paths: RunPaths, correction: Correction) -> tuple[str, str]:
    """(name, sha256) of the file; the same correction is the same file. One that was changed since
    is set aside.

    Raises InputError when it cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(correction), indent=1) + b"\n"
    sha256 = hashlib.sha256(data).hexdigest()
    path = paths.calibration / f"correction-{sha256[:16]}.json"
    if not _create(path, data):
        found = _read(path)
        if found != data:
            own = hashlib.sha256(found).hexdigest()[:8]
            _set_aside(path, path.with_name(f"{path.stem}-{own}.changed"))
            _create(path, data)
    return path.name, sha256


def set_aside(paths: RunPaths) -> list[str]:
    """Names of the correction files that were changed after they were written."""
    return sorted(path.name for path in paths.calibration.glob("correction-*.changed"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unwritable(path, error) from error


def _set_aside(path: Path, name: Path) -> None:
    try:
        os.replace(path, name)
    except OSError as error:
        raise _unwritable(path, error) from error


def read_correction(paths: RunPaths, entry: HistoryEntry) -> Correction:
    """The correction that an entry applied.

    Raises InputError when the file is not there, does not read or is not what was applied.
    """
    path = paths.calibration / entry.correction
    next_step = "apply again: comminsight calibrate apply"
    if not _CORRECTION.fullmatch(entry.correction):
        raise InputError("names no correction", path=str(path), next_step=next_step)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", path=str(path), next_step=next_step
        ) from error
    if hashlib.sha256(data).hexdigest() != entry.correction_sha256:
        raise InputError("is not what was applied", path=str(path), next_step=next_step)
    return read_document(data, Correction, path=str(path), next_step=next_step)


def append_entry(paths: RunPaths, entry: HistoryEntry) -> HistoryEntry:
    """The entry as it was added, with its number and the hash of the one before.

    Raises InputError when it cannot be written.
    """
    for _ in range(_TRIES):
        files = _entry_files(paths)
        previous = hashlib.sha256(files[-1].read_bytes()).hexdigest() if files else ""
        number = _number(files[-1]) + 1 if files else 1
        added = msgspec.structs.replace(entry, number=number, previous_sha256=previous)
        data = msgspec.json.format(msgspec.json.encode(added), indent=1) + b"\n"
        if _create(paths.calibration / f"history-{number:06d}.json", data):
            return added
    raise InputError("others keep changing it", path=str(paths.calibration), next_step="try again")


def read_history(paths: RunPaths) -> tuple[list[HistoryEntry], list[str]]:
    """Entries in order, and the names of files that do not read or do not follow the one before."""
    entries, problems = [], []
    previous, expected = "", 1
    for path in _entry_files(paths):
        data = b""
        try:
            data = path.read_bytes()
            entry = read_document(data, HistoryEntry)
        except (InputError, OSError):
            problems.append(path.name)
        else:
            entries.append(entry)
            if (entry.number, entry.previous_sha256) != (expected, previous):
                problems.append(path.name)
        previous, expected = hashlib.sha256(data).hexdigest(), _number(path) + 1
    return entries, problems


def _entry_files(paths: RunPaths) -> list[Path]:
    return sorted(p for p in paths.calibration.glob("history-*.json") if _ENTRY.fullmatch(p.name))


def _number(path: Path) -> int:
    found = _ENTRY.fullmatch(path.name)
    return int(found[1]) if found else 0


def _create(path: Path, data: bytes) -> bool:
    """Whether the file is new: it appears whole, and one that is there is never touched."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot be written: {error.strerror}", path=str(path),
        next_step="copy the run to a place where you may write, and calibrate it there",
    )  # fmt: skip
