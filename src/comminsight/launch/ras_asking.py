"""Asks NCCL's RAS about a hang, in a thread of its own: neither the verdict nor the job waits.

It is evidence beside the records, so whatever fails is one note. NCCL before 2.27 is not asked: a
question while a communicator is being made could end the process (NVIDIA/nccl issue 1669).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from comminsight.capture.ras_client import DEADLINE_S, RasAddress, RasReply, ask_ras, ras_address
from comminsight.capture.session import SessionData
from comminsight.errors import InputError, UnreachableError
from comminsight.launch.boxes import RunBoxes, stated_header
from comminsight.model.ops import Backend
from comminsight.model.verdict import Message
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.ras_store import write_ras

FIRST_VERSION = 22700
FINISH_S = 2.0  # the job is over by then, and with it the other side

Ask = Callable[[RasAddress], RasReply]


@dataclass(slots=True)
class RasAsking:
    """At most one question at a time; ``finish`` gives the notes on those that failed."""

    ask: Ask = field(default=partial(ask_ras, deadline_s=DEADLINE_S))
    _thread: threading.Thread | None = None
    _failures: list[str] = field(default_factory=list)

    def begin(
        self,
        sessions: Sequence[SessionData],
        environment: Mapping[str, str],
        paths: RunPaths,
        observed_mono_ns: int,
    ) -> bool:
        """Ask, if the run has an NCCL that may be asked; the answer becomes a file of ``paths``."""
        address = ras_address(environment)
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or address is None or not may_be_asked(sessions):
            return False
        arguments = (address, paths, observed_mono_ns)
        thread = threading.Thread(target=self._keep, args=arguments, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread to be had: the verdict goes on without
            self._failures.append(str(error))
            return False
        self._thread = thread
        return True

    def finish(self) -> list[Message]:
        """What did not work, each once."""
        if self._thread is not None:
            self._thread.join(FINISH_S)
        return [
            Message("launch.ras_unanswered", {"error": error})
            for error in dict.fromkeys(self._failures)
        ]

    def _keep(self, address: RasAddress, paths: RunPaths, observed_mono_ns: int) -> None:
        try:
            reply = self.ask(address)
            write_ras(paths, reply.form, reply.data, observed_mono_ns=observed_mono_ns)
        except Exception as error:  # noqa: BLE001 - bulkhead: a note of the run counts it
            is_ours = isinstance(error, UnreachableError)
            self._failures.append(str(error) if is_ours else f"{type(error).__name__}: {error}")


def may_be_asked(sessions: Sequence[SessionData]) -> bool:
    """True where there is an NCCL communicator, and none of a version that is known too old."""
    tables = [session.comms for session in sessions if len(session.comms)]
    if not tables:
        return False
    versions = np.concatenate(
        [rows["lib_version"][rows["backend"] == Backend.NCCL] for rows in tables]
    )
    return len(versions) > 0 and not np.any((versions > 0) & (versions < FIRST_VERSION))


def job_environment(boxes: RunBoxes) -> dict[str, str]:
    """The variables of a process that records, as its box states them; none without any."""
    for path in boxes.paths():
        try:
            return stated_header(path).environment
        except InputError:
            continue
    return {}
