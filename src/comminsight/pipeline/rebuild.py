"""A session's records through the semantic engine: the same engine live, replayed or rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from comminsight.capture.session import SessionData
from comminsight.model.hang import Liveness
from comminsight.model.session import SessionBreak
from comminsight.model.step import StepSummary
from comminsight.model.tally import Tally
from comminsight.model.views import TemplateScore
from comminsight.semantics.arrival import OrderSettings
from comminsight.semantics.engine import EngineSettings, SessionEngine
from comminsight.semantics.template import Template

CHUNK_RECORDS = 1 << 17


@dataclass(frozen=True, slots=True)
class SessionSteps:
    """Steps of one session, what became of its records, why and when it was given up, and how the
    templates fared."""

    steps: tuple[StepSummary, ...]
    tally: Tally
    template: str
    broken: SessionBreak | None = None
    scores: tuple[TemplateScore, ...] = ()


def rebuild_session(session: SessionData, templates: Sequence[Template]) -> SessionSteps:
    """The session's steps. A stream that may still grow is not ended: its tail stays open."""
    engine = SessionEngine(templates, engine_settings(session), session.identity)
    engine.add_comms(session.comms)
    steps: list[StepSummary] = []
    for chunk in chunks(session.records):
        steps += engine.push(chunk)
    if session.liveness is not Liveness.ALIVE:
        steps += engine.finish()
    return SessionSteps(
        steps=tuple(steps),
        tally=own_counts(engine.tally),
        template=steps[0].template if steps else "",
        broken=engine.state.broken,
        scores=engine.selection,
    )


def engine_settings(session: SessionData) -> EngineSettings:
    """Settings with the recorder's own safe window: its OPEN markers come at half of it."""
    return settings_with(session.settings)


def settings_with(recorder: Mapping[str, int]) -> EngineSettings:
    """Settings of the engine that go with these of the recorder."""
    default = OrderSettings()
    window_ns = recorder.get("safe_window_ns") or default.safe_window_ns
    return EngineSettings(order=msgspec.structs.replace(default, safe_window_ns=window_ns))


def own_counts(tally: Tally) -> Tally:
    """The engine's counts without the gaps that the reader has counted already."""
    return Tally({name: n for name, n in tally.items() if name != "seq_gaps"})


def chunks(records: np.ndarray) -> list[np.ndarray]:
    """The records in pieces that bound the engine's memory."""
    return [records[i : i + CHUNK_RECORDS] for i in range(0, len(records), CHUNK_RECORDS)]
