"""Global step numbers for the steps that each rank counted on its own, and who set them when.

The raw steps are never changed: a correction says which training step of the run each local step
is, how that is known, and what of it could not be told. It is valid for exactly the raw steps it
was computed from (``raw_sha256``).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from comminsight.model.verdict import Confidence

CALIBRATION_SCHEMA_VERSION = "1.1.0"
CALIBRATION_METHOD = 2  # another number: other results from the same steps
LEFT_RAW = -1


class StepView(StrEnum):
    """Which numbers a reader is shown: each rank's own, joined by order, or corrected ones."""

    RAW = "raw"
    CALIBRATED = "calibrated"


class StepMark(StrEnum):
    """What is out of the ordinary about a local step."""

    NONE = ""
    FUSED = "fused"  # it spans more than one training step
    SPLIT = "split"  # its training step has another local step of this rank
    RAW = "raw"  # could not be told


class StepProof(StrEnum):
    """How a global number is known; the first three are ops that other ranks name as well."""

    ANCHOR = "anchor"
    FIRST = "first"
    LAST = "last"
    PLACE = "place"  # of the steps before and behind it, the number between them
    ORDER = "order"  # counted on from a step of the same rank or communicator
    ALONE = "alone"  # by its own anchor, which no other rank recorded


class StepSpan(msgspec.Struct, frozen=True, kw_only=True):
    """``n_steps`` consecutive local steps from ``local_step`` on are the training steps from
    ``step`` on; ``LEFT_RAW`` where that could not be told, with its ``reason`` (a catalogue code).

    A fused one (then ``n_steps`` is 1) spans ``n_before`` training steps before ``step`` and
    ``n_behind`` behind it as well.
    """

    local_step: int
    n_steps: int
    step: int
    mark: StepMark = StepMark.NONE
    confidence: Confidence = Confidence.HIGH
    proofs: tuple[StepProof, ...] = ()
    n_before: int = 0
    n_behind: int = 0
    reason: str = ""


class SessionCorrection(msgspec.Struct, frozen=True, kw_only=True):
    """One session's steps as spans in local order, none left out; ``missing`` are the training
    steps between its first and its last that it has no step of, as ranges.

    Sessions of one ``part`` share ops, one with the other or through others: their numbers compare.
    -1 is a session that is left raw.
    """

    session_id: str
    global_rank: int
    part: int
    spans: tuple[StepSpan, ...]
    missing: str = ""

    def numbers(self) -> Iterator[tuple[int, StepSpan]]:
        """(training step or ``LEFT_RAW``, its span) of each local step, in order."""
        for span in self.spans:
            for place in range(span.n_steps):
                yield LEFT_RAW if span.step == LEFT_RAW else span.step + place, span


class TemplateVersion(msgspec.Struct, frozen=True, order=True):
    """A template that the raw steps were found with."""

    template: str
    version: int
    file_version: int


class CorrectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Local steps by what the correction says of them; ``n_missing`` counts training steps."""

    n_sessions: int = 0
    n_local_steps: int = 0
    n_steps: int = 0  # training steps
    n_renumbered: int = 0
    n_fused: int = 0
    n_split: int = 0
    n_missing: int = 0
    n_raw: int = 0
    n_parts: int = 0
    by_confidence: dict[str, int] = {}


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one correction file."""

    run_id: str
    raw_sha256: str
    templates: tuple[TemplateVersion, ...]
    sessions: tuple[SessionCorrection, ...]
    counts: CorrectionCounts
    schema_version: str = CALIBRATION_SCHEMA_VERSION
    method: int = CALIBRATION_METHOD


class CalibrationAction(StrEnum):
    """What changes the state of a run."""

    APPLY = "apply"
    CLEAR = "clear"


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change, never rewritten: ``previous_sha256`` is of the entry before it, "" for the first.

    ``correction`` names the file that was applied, ``correction_sha256`` its content.
    """

    number: int
    action: CalibrationAction
    at_real_ns: int
    who: str
    previous_sha256: str = ""
    reason: str = ""
    correction: str = ""
    correction_sha256: str = ""
    counts: CorrectionCounts | None = None


class CalibrationState(msgspec.Struct, frozen=True, kw_only=True):
    """What readers of a run see. ``stale`` is the catalogue code of why an applied correction is
    not shown, "" otherwise; ``entry`` is the last change."""

    view: StepView = StepView.RAW
    stale: str = ""
    entry: HistoryEntry | None = None


class CalibrationHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All changes in order, and the state they lead to. ``problems`` are entries that do not read
    or do not follow from the one before; ``set_aside`` are correction files that somebody changed
    after they were written, kept under another name when they were written anew."""

    schema_version: str
    run_id: str
    state: CalibrationState
    entries: tuple[HistoryEntry, ...] = ()
    problems: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


class CalibrationView(msgspec.Struct, frozen=True, kw_only=True):
    """A correction that was computed or applied, and the state of the run."""

    schema_version: str
    run_id: str
    state: CalibrationState
    correction: Correction
    is_applied: bool = False
