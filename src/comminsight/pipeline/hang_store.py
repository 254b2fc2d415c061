"""Hang evidence on disk: one JSON file per event, never changed once written."""

from __future__ import annotations

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.model.hang import HangEvent
from comminsight.pipeline.layout import RunPaths, write_whole

PREFIX = "hang-"


def write_hang(paths: RunPaths, event: HangEvent) -> str:
    """Path of the new file; its name grows with every event."""
    number = len(list(paths.hangs.glob(f"{PREFIX}*.json"))) + 1
    path = paths.hangs / f"{PREFIX}{number:04d}-{event.observed_mono_ns}.json"
    write_whole(path, msgspec.json.format(msgspec.json.encode(event), indent=1))
    return str(path)


def read_hangs(paths: RunPaths) -> tuple[list[HangEvent], list[str]]:
    """Events in the order of observation, and the names of files that are none."""
    events, unreadable = [], []
    for path in sorted(paths.hangs.glob(f"{PREFIX}*.json")):
        try:
            events.append(read_document(path.read_bytes(), HangEvent))
        except (InputError, OSError):
            unreadable.append(path.name)
    return events, unreadable
