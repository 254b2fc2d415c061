"""Every loss and every flow counted by a declared name: read = emitted + late + bad + dropped.

A tally is a value: stages add to their own and the sums are joined. Undeclared names are an
error, so that a counter cannot be misspelt into silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a count matters to the truth of a verdict."""

    INFO = "info"
    LOSS = "loss"
    ERROR = "error"


class TallyName(msgspec.Struct, frozen=True):
    """Declaration of one counter."""

    name: str
    severity: Severity
    help: str


TALLY_NAMES: dict[str, TallyName] = {
    entry.name: entry
    for entry in (
        TallyName("segment_records_read", Severity.INFO, "records read from segments"),
        TallyName("segment_frames_torn", Severity.LOSS, "frames cut short by a dying writer"),
        TallyName("segment_frames_bad", Severity.ERROR, "frames whose checksum is wrong"),
        TallyName("segment_bytes_skipped", Severity.ERROR, "bytes passed over to find a frame"),
        TallyName("segment_records_bad", Severity.ERROR, "records with impossible values"),
        TallyName(
            "segment_rows_bad", Severity.ERROR, "communicators of an impossible size or rank"
        ),
        TallyName("segment_files_unreadable", Severity.ERROR, "files that could not be read"),
        TallyName("ring_records_read", Severity.INFO, "records read from a black-box ring"),
        TallyName("ring_records_torn", Severity.LOSS, "ring records being overwritten while read"),
        TallyName("ring_records_overwritten", Severity.LOSS, "ring records gone before reading"),
        TallyName("records_duplicate", Severity.INFO, "records seen in segment and ring"),
        TallyName("seq_gaps", Severity.LOSS, "records missing in a process's arrival numbers"),
        TallyName("sessions_cut", Severity.LOSS, "processes whose last records are not at hand"),
        TallyName("calls_unseen", Severity.LOSS, "collectives of NCCL that the recorder never saw"),
        TallyName("capture_lost", Severity.LOSS, "ops the recorder itself counted as lost"),
        TallyName("ops_switched_off", Severity.LOSS, "ops passed over because somebody asked"),
        TallyName("order_read", Severity.INFO, "records given to the reorder stage"),
        TallyName("order_emitted", Severity.INFO, "records committed in time order"),
        TallyName("order_late", Severity.LOSS, "records later than the safe window"),
        TallyName("order_bad", Severity.ERROR, "records with an impossible start"),
        TallyName("order_dropped", Severity.LOSS, "records dropped when a session was closed"),
        TallyName("order_markers", Severity.INFO, "markers consumed by the reorder stage"),
        TallyName("order_holds_expired", Severity.LOSS, "open-op holds ended by the bound"),
        TallyName("steps_emitted", Severity.INFO, "steps closed"),
        TallyName("steps_without_phases", Severity.INFO, "steps whose phases are all unknown"),
        TallyName("steps_open", Severity.INFO, "steps still open at the end of the stream"),
        TallyName("ops_between_steps", Severity.INFO, "ops after a Close and before the next Open"),
        TallyName("ops_before_first_step", Severity.INFO, "ops before the first Open"),
        TallyName("sessions_broken", Severity.ERROR, "sessions closed by the circuit breaker"),
        TallyName("p2p_unpaired", Severity.LOSS, "send or recv halves without a partner"),
        TallyName("instances_incomplete", Severity.LOSS, "op instances that lack a member"),
        TallyName("signature_mismatches", Severity.ERROR, "op instances whose members disagree"),
        TallyName("ranks_missing", Severity.LOSS, "ranks of the world without any record"),
    )
}

# What keeps a record from its readers, each record under one name. ``segment_records_bad`` is not
# among them: the number of a record that was thrown away is counted as missing already.
NOT_READ = ("capture_lost", "seq_gaps", "ring_records_overwritten", "ring_records_torn")


class Tally:
    """A mapping from declared counter name to count."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts: dict[str, int] = {}
        for name, count in (counts or {}).items():
            self.add(name, count)

    def add(self, name: str, count: int = 1) -> None:
        """Count ``count`` more under ``name``; raises KeyError for an undeclared name."""
        if name not in TALLY_NAMES:
            raise KeyError(f"undeclared tally {name!r}: declare it in model/tally.py")
        if count:
            self._counts[name] = self._counts.get(name, 0) + int(count)

    def merge(self, other: Tally) -> None:
        """Add all counts of ``other``."""
        for name, count in other.items():
            self.add(name, count)

    def items(self) -> Iterator[tuple[str, int]]:
        """(name, count) pairs in name order."""
        return iter(sorted(self._counts.items()))

    def __getitem__(self, name: str) -> int:
        if name not in TALLY_NAMES:
            raise KeyError(f"undeclared tally {name!r}: declare it in model/tally.py")
        return self._counts.get(name, 0)

    def sum_of(self, names: Iterable[str]) -> int:
        """Sum of these counters."""
        return sum(self[name] for name in names)

    def as_dict(self) -> dict[str, int]:
        """Counts above zero, by name."""
        return dict(self.items())

    def total(self, severity: Severity) -> int:
        """Sum of the counters of one severity."""
        return sum(n for name, n in self.items() if TALLY_NAMES[name].severity is severity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable value

    def __repr__(self) -> str:
        return f"Tally({self.as_dict()})"
