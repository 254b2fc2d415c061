"""What the pipeline reads from: running processes or a run directory, in one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from comminsight.model.hang import Liveness
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """News of one session.

    ``records`` (OP_DTYPE, ``seq`` order, each once over all batches) are new; everything else is
    the state so far: ``comms`` the newest rows, ``losses`` the cumulative table, ``in_flight`` the
    slots of ops without an end, ``tally`` all counts. ``is_ended``: no batch of it will follow.
    """

    session: SessionIdentity
    comms: np.ndarray
    records: np.ndarray
    losses: np.ndarray
    in_flight: np.ndarray
    liveness: Liveness
    pid: int
    tally: Tally
    settings: dict[str, int]
    is_ended: bool = False


class Source(Protocol):
    """A stream of batches; for sessions that have ended all sources deliver the same records."""

    def poll(self) -> list[SourceBatch]:
        """What is new since the last call; empty when nothing is."""
        ...

    def close(self) -> None:
        """Gives back open files."""
        ...
