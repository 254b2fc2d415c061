"""The black boxes of one run on this node: found, polled, archived when their owner is gone."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from comminsight.capture.box import read_box
from comminsight.capture.discovery import SessionPaths, discover
from comminsight.errors import InputError
from comminsight.format.layout import BOX_HEADER_BYTES, BOX_HEADER_DTYPE
from comminsight.model.hang import Liveness
from comminsight.pipeline.load import live_box_dir


@dataclass(slots=True)
class RunBoxes:
    """Boxes whose identity names ``run_id``; a file is asked for it once."""

    run_id: str
    folder: Path = field(default_factory=live_box_dir)
    _is_ours: dict[str, bool] = field(default_factory=dict)

    def paths(self) -> list[Path]:
        """Boxes of the run that are there now."""
        try:
            found = sorted(self.folder.glob("*.box"))
        except OSError:
            return []
        return [path for path in found if self._belongs(path)]

    def sessions(self, spool: Path) -> list[SessionPaths]:
        """The sessions that own these boxes, with their segments where they have any."""
        ours = set(self.paths())
        return [entry for entry in discover(spool, self.folder).sessions if entry.box in ours]

    def _belongs(self, path: Path) -> bool:
        if path.name not in self._is_ours:
            try:
                self._is_ours[path.name] = read_box(path).data.identity.run_id == self.run_id
            except InputError:
                return False  # perhaps still being made: ask again
        return self._is_ours[path.name]

    def n_overdue(self) -> int:
        """Ops in flight beyond the limit, over all boxes, from their header pages alone."""
        return sum(overdue_slots(path) for path in self.paths())

    def archive(self, target: Path) -> list[str]:
        """Copy every box into the run; unlink those whose process is gone. Notes on failures."""
        notes = []
        for path in self.paths():
            try:
                liveness = read_box(path).liveness
                shutil.copyfile(path, target / path.name)
                if liveness is not Liveness.ALIVE:
                    path.unlink()
            except (InputError, OSError) as error:
                notes.append(f"black box not archived: {error}")
        return notes


def overdue_slots(path: Path) -> int:
    """The header's count of overdue slots; 0 when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        page = os.pread(descriptor, BOX_HEADER_BYTES, 0)
    finally:
        os.close(descriptor)
    if len(page) < BOX_HEADER_BYTES:
        return 0
    return int(np.frombuffer(page, BOX_HEADER_DTYPE)[0]["overdue_slots"])
