"""A session's records through the semantic engine: the same engine live, replayed or rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.model.hang import Liveness
from comminsight.model.step import StepSummary
from comminsight.model.tally import Tally
from comminsight.semantics.engine import EngineSettings, SessionEngine
from comminsight.semantics.template import Template

CHUNK_RECORDS = 1 << 17


@dataclass(frozen=True, slots=True)
class SessionSteps:
    """Steps of one session, what became of its records, why it was closed ("" if not)."""

    steps: tuple[StepSummary, ...]
    tally: Tally
    template: str
    broken: str


def rebuild_session(
    session: SessionData, templates: Sequence[Template], settings: EngineSettings
) -> SessionSteps:
    """The session's steps. A stream that may still grow is not ended: its tail stays open."""
    engine = SessionEngine(templates, settings, session.identity)
    engine.add_comms(session.comms)
    steps: list[StepSummary] = []
    for chunk in chunks(session.records):
        steps += engine.push(chunk)
    if session.liveness is not Liveness.ALIVE:
        steps += engine.finish()
    return SessionSteps(
        steps=tuple(steps),
        tally=engine.tally,
        template=steps[0].template if steps else "",
        broken=engine.state.reason,
    )


def chunks(records: np.ndarray) -> list[np.ndarray]:
    """The records in pieces that bound the engine's memory."""
    return [records[i : i + CHUNK_RECORDS] for i in range(0, len(records), CHUNK_RECORDS)]
