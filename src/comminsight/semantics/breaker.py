"""When a session is given up: no template matches, its topology is another, or no step comes.

Each decision falls at one op of the committed stream, so that it does not depend on how the
records were chunked. Time is *active* time: a pause between two ops counts for at most
``max_pause_ns``, because a job that idles or stands still makes no steps and is none the worse.
"""

from __future__ import annotations

import msgspec
import numpy as np

from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.template import Template
from comminsight.semantics.topology import outside_table


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Ops and active time without a template, and under a template without a step."""

    max_held_ops: int = 131_072
    max_held_ns: int = 4 * 3_600_000_000_000
    max_ops_without_step: int = 4_000_000
    max_ns_without_step: int = 4 * 3_600_000_000_000
    max_pause_ns: int = 60_000_000_000


class WatchSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What the watch carries from batch to batch."""

    n_ops: int
    active_ns: int
    last_start_ns: int


def active_ns(start_ns: np.ndarray, max_pause_ns: int) -> int:
    """Time from the first to the last of these starts (ascending), long pauses cut short."""
    return int(np.minimum(np.diff(start_ns), max_pause_ns).sum())


class StepWatch:
    """Ops and active time since the Open of the step in progress was complete."""

    __slots__ = ("_comms", "_is_outside", "_settings", "_template", "_topology_at", "active_ns",
                 "last_start_ns", "n_ops")  # fmt: skip

    def __init__(self, settings: BreakerSettings, template: Template, comms: CommTable) -> None:
        self.n_ops = self.active_ns = self.last_start_ns = 0
        self._settings, self._template, self._comms = settings, template, comms
        self._topology_at = -1
        self._is_outside = np.zeros(0, np.bool_)

    def n_until_due(self, rows: np.ndarray) -> int:
        """How many of these ops, at least one, may be fed before the watch has to be asked."""
        settings = self._settings
        n_due = min(settings.max_ops_without_step + 1 - self.n_ops, len(rows))
        start_ns = rows["start_ns"]
        if self.active_ns + int(start_ns[-1]) - self.last_start_ns > settings.max_ns_without_step:
            pauses = np.diff(start_ns, prepend=self.last_start_ns)
            passed_ns = np.cumsum(np.minimum(pauses, settings.max_pause_ns)) + self.active_ns
            n_due = min(n_due, _first(passed_ns > settings.max_ns_without_step) + 1)
        return max(min(n_due, _first(self._is_out(rows)) + 1), 1)

    def note(self, rows: np.ndarray, opened_at: int) -> None:
        """These ops were fed; ``opened_at`` is the last op of the newest Open among them, or -1."""
        start_ns, since_ns = rows["start_ns"], self.last_start_ns
        if opened_at >= 0:
            self.n_ops, self.active_ns = len(rows) - 1 - opened_at, 0
            start_ns = start_ns[opened_at:]
            since_ns = int(start_ns[0])
        else:
            self.n_ops += len(rows)
        self.last_start_ns = int(start_ns[-1])
        passed_ns = self.last_start_ns - since_ns
        if passed_ns > self._settings.max_pause_ns:  # else no pause among them can be that long
            starts_ns = np.append(since_ns, start_ns)
            passed_ns = active_ns(starts_ns, self._settings.max_pause_ns)
        self.active_ns += passed_ns

    @property
    def is_over(self) -> bool:
        """Whether the step in progress lasts too long to be one."""
        settings = self._settings
        return (
            self.n_ops > settings.max_ops_without_step
            or self.active_ns > settings.max_ns_without_step
        )

    def is_topology_left(self, row: np.ndarray) -> bool:
        """Whether this op (one row) is of a communicator that the template rules out."""
        return bool(self._is_out(row).any())

    def snapshot(self) -> WatchSnapshot:
        """The state between two batches."""
        return WatchSnapshot(self.n_ops, self.active_ns, self.last_start_ns)

    def restore(self, snapshot: WatchSnapshot) -> None:
        """Continue from a snapshot."""
        self.n_ops, self.active_ns = snapshot.n_ops, snapshot.active_ns
        self.last_start_ns = snapshot.last_start_ns

    def _is_out(self, rows: np.ndarray) -> np.ndarray:
        if not self._template.topology.groups:
            return np.zeros(0, np.bool_)
        if self._topology_at != len(self._comms.roles):  # rows are only appended
            self._topology_at = len(self._comms.roles)
            self._is_outside = outside_table(self._template.topology, self._comms)
        index = self._comms.clip(np.ascontiguousarray(rows["comm_index"]))
        found: np.ndarray = self._is_outside.take(index)
        return found


def _first(mask: np.ndarray) -> int:
    """Index of the first true; past the end of any batch where none is."""
    return int(mask.argmax()) if mask.any() else 1 << 62
