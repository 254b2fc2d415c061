"""Hang evidence on disk: one JSON file per event, never changed once written."""

from __future__ import annotations

import os

import msgspec

from comminsight.model.hang import HangEvent
from comminsight.pipeline.layout import RunPaths

PREFIX = "hang-"


def write_hang(paths: RunPaths, event: HangEvent) -> str:
    """Path of the new file; its name grows with every event."""
    number = len(list(paths.hangs.glob(f"{PREFIX}*.json"))) + 1
    path = paths.hangs / f"{PREFIX}{number:04d}-{event.observed_mono_ns}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(event), indent=1))
    os.replace(temporary, path)
    return str(path)


def read_hangs(paths: RunPaths) -> tuple[list[HangEvent], list[str]]:
    """Events in the order of observation, and the names of files that are none."""
    events, unreadable = [], []
    for path in sorted(paths.hangs.glob(f"{PREFIX}*.json")):
        try:
            events.append(msgspec.json.decode(path.read_bytes(), type=HangEvent))
        except (msgspec.DecodeError, OSError):
            unreadable.append(path.name)
    return events, unreadable
