"""The calibration of a run: computed from its raw steps, applied and cleared, read by its state.

An applied correction is shown only for exactly the raw steps it was computed from. When templates
were changed or more was recorded it is stale: the numbers shown are raw again, and say why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.model.calibration import (
    CALIBRATION_METHOD,
    CALIBRATION_SCHEMA_VERSION,
    CalibrationAction,
    CalibrationHistory,
    CalibrationState,
    CalibrationView,
    Correction,
    HistoryEntry,
    StepView,
)
from comminsight.model.step import StepSummary
from comminsight.pipeline.calibration_store import (
    append_entry,
    read_correction,
    read_history,
    set_aside,
    write_correction,
)
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.trace import joined_communicators
from comminsight.semantics.correction import correction_of, template_versions
from comminsight.semantics.step_table import SessionStepList

Rebuild = Callable[[SessionData], tuple[StepSummary, ...]]


@dataclass(frozen=True, slots=True)
class Act:
    """Who changes the state, when and why."""

    who: str
    at_real_ns: int
    reason: str = ""


class RunCalibration:
    """The calibration of one run; the newest lives of the ranks first, then earlier ones."""

    def __init__(
        self, paths: RunPaths, run_id: str, sessions: Sequence[SessionData], rebuild: Rebuild
    ) -> None:
        self._paths, self._run_id = paths, run_id
        self._sessions, self._rebuild = tuple(sessions), rebuild

    @property
    def state(self) -> CalibrationState:
        """Raw or calibrated, and why an applied correction is not shown."""
        return self._known[0]

    @property
    def correction(self) -> Correction | None:
        """The correction that readers are shown; None while the numbers are raw."""
        return self._known[1]

    def preview(self) -> CalibrationView:
        """What ``apply`` would archive; nothing is written.

        Raises InputError when there is no step to correct.
        """
        return self._view(self._computed)

    def apply(self, act: Act) -> CalibrationView:
        """Archives the correction and makes readers show it.

        Raises InputError when there is no step to correct, or when it cannot be written.
        """
        correction = self._computed
        name, sha256 = write_correction(self._paths, correction)
        self._append(
            CalibrationAction.APPLY, act, correction=name, correction_sha256=sha256,
            counts=correction.counts,
        )  # fmt: skip
        return msgspec.structs.replace(self._view(correction), is_applied=True)

    def clear(self, act: Act) -> CalibrationHistory:
        """Makes readers show raw numbers again; corrections and history stay."""
        self._append(CalibrationAction.CLEAR, act)
        return self.history()

    def history(self) -> CalibrationHistory:
        """Who applied or cleared what, when and why."""
        entries, problems = self._history
        return CalibrationHistory(
            schema_version=CALIBRATION_SCHEMA_VERSION, run_id=self._run_id, state=self.state,
            entries=tuple(entries), problems=tuple(problems),
            set_aside=tuple(set_aside(self._paths)),
        )  # fmt: skip

    @property
    def problems(self) -> tuple[str, ...]:
        """Files of the history that do not read or do not follow from the one before."""
        return tuple(self._history[1])

    @cached_property
    def _history(self) -> tuple[list[HistoryEntry], list[str]]:
        return read_history(self._paths)

    @cached_property
    def _known(self) -> tuple[CalibrationState, Correction | None]:
        entry = self._history[0][-1] if self._history[0] else None
        if entry is None or entry.action is CalibrationAction.CLEAR:
            return CalibrationState(entry=entry), None
        try:
            correction = read_correction(self._paths, entry)
        except InputError:
            return CalibrationState(stale="unreadable", entry=entry), None
        stale = stale_reason(correction, self._raw_steps)
        if stale:
            return CalibrationState(stale=stale, entry=entry), None
        return CalibrationState(view=StepView.CALIBRATED, entry=entry), correction

    @cached_property
    def _raw_steps(self) -> dict[str, tuple[StepSummary, ...]]:
        return {s.identity.session_id: self._rebuild(s) for s in self._sessions}

    @cached_property
    def _computed(self) -> Correction:
        _, comm_ids = joined_communicators(self._sessions)
        lists = [self._list(s, comm_ids[s.identity.session_id]) for s in self._sessions]
        if not any(self._raw_steps.values()):
            raise InputError(
                "has no steps to calibrate", path=str(self._paths.root), code="no_steps",
                next_step="comminsight templates says why no template found any",
            )  # fmt: skip
        return correction_of(lists, run_id=self._run_id, raw_sha256=raw_sha256(self._raw_steps))

    def _list(self, session: SessionData, comm_ids: np.ndarray) -> SessionStepList:
        comm_ranks = np.full(len(comm_ids), -1)
        known = session.comms[session.comms["comm_index"] < len(comm_ids)]
        comm_ranks[known["comm_index"]] = known["comm_rank"]
        raw = self._raw_steps[session.identity.session_id]
        return SessionStepList(session.identity, raw, comm_ids, comm_ranks)

    def _view(self, correction: Correction) -> CalibrationView:
        return CalibrationView(
            schema_version=CALIBRATION_SCHEMA_VERSION, run_id=self._run_id, state=self.state,
            correction=correction,
        )  # fmt: skip

    def _append(self, action: CalibrationAction, act: Act, **what: object) -> None:
        entry = HistoryEntry(
            number=0, action=action, at_real_ns=act.at_real_ns, who=act.who, reason=act.reason
        )
        append_entry(self._paths, msgspec.structs.replace(entry, **what))
        for name in ("_history", "_known"):
            self.__dict__.pop(name, None)


def raw_sha256(steps: Mapping[str, tuple[StepSummary, ...]]) -> str:
    """The hash of all raw steps, whatever the order of their sessions."""
    digest = hashlib.sha256()
    encoder = msgspec.msgpack.Encoder()
    for _, own in sorted(steps.items()):
        for step in own:
            digest.update(encoder.encode(step))
    return digest.hexdigest()


def stale_reason(correction: Correction, steps: Mapping[str, tuple[StepSummary, ...]]) -> str:
    """Why the correction does not fit the steps, as a catalogue code; "" where it does."""
    if correction.method != CALIBRATION_METHOD:
        return "method"
    if correction.raw_sha256 == raw_sha256(steps):
        return ""
    now = template_versions(step for own in steps.values() for step in own)
    return "steps" if now == correction.templates else "templates"
