"""Ends of processes that only the plugin recorded: in order, unknown, or a death."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.format.layout import SLOT_DTYPE
from comminsight.model.hang import Liveness
from comminsight.model.ops import Backend
from comminsight.pipeline.quiet_ends import with_quiet_ends
from tests.builders import comm_row, comm_rows, identity
from tests.unit.pipeline.test_ends import UNSEEN, manifest, session

DEAD, CLOSED, ALIVE, UNKNOWN = Liveness.DEAD, Liveness.CLOSED, Liveness.ALIVE, Liveness.UNKNOWN


def process(
    rank: int, *retired_ns: int, n_in_flight: int = 0, hook: bool = False,
    backend: Backend = Backend.NCCL, liveness: Liveness = DEAD,
) -> SessionData:  # fmt: skip
    rows = [comm_row(i, backend=backend, retired_ns=at) for i, at in enumerate(retired_ns, 1)]
    versions = {"comminsight": "1"} | ({"python": "3.11"} if hook else {})
    return replace(
        session(rank), identity=identity(rank, versions=versions), comms=comm_rows(*rows),
        in_flight=np.zeros(n_in_flight, SLOT_DTYPE), liveness=liveness,
    )  # fmt: skip


def ends(*sessions: SessionData) -> list[Liveness]:
    return [s.liveness for s in with_quiet_ends(sessions, [])]


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([process(0, 7, 8)], [CLOSED]),  # all destroyed
        ([process(0, 7, 0)], [UNKNOWN]),  # exited without, or killed while nobody communicated
        ([process(0, 0), process(1, 0, n_in_flight=1)], [DEAD, DEAD]),  # somebody waited
        ([process(0, 7), process(1, 0, n_in_flight=1)], [CLOSED, DEAD]),
        ([process(0, 0, hook=True)], [DEAD]),  # the hook would have closed it
        ([process(0, 0, backend=Backend.GLOO)], [DEAD]),
        ([process(0, 0, liveness=ALIVE)], [ALIVE]),
        ([process(0)], [DEAD]),
    ],
)
def test_how_a_process_of_the_plugin_alone_ended(
    sessions: list[SessionData], expected: list[Liveness]
) -> None:
    assert ends(*sessions) == expected


def test_what_a_launcher_saw_stands() -> None:
    seen = manifest((0, 5, UNSEEN))
    assert [s.liveness for s in with_quiet_ends([process(0, 7)], [seen])] == [DEAD]
