"""The steps of one session as its records come: engine, steps file and snapshot together.

The same object serves who follows a live process and who reads an archive. It may be killed at any
instant: ``save`` writes the steps first and the snapshot that counts them second; whoever begins
again cuts the steps file back to the last snapshot and asks for the records behind it. Where the
snapshot is refused, or belongs to another set of templates or settings, it begins at the first
record, and the steps are the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from comminsight.errors import InputError
from comminsight.model.session import SessionRecord
from comminsight.model.step import StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.layout import unwritable_run, write_whole
from comminsight.pipeline.snapshots import (
    SessionSnapshot,
    read_snapshot,
    snapshot_path,
    template_digest,
    write_snapshot,
)
from comminsight.semantics.engine import EngineSettings, SessionEngine
from comminsight.semantics.template import Template

_ENCODER = msgspec.json.Encoder()


class SessionStepper:
    """Feed records with numbers above ``delivered_seq``, in their order; ``refusal`` says why an
    earlier snapshot was not taken, "" where there was none or it was."""

    def __init__(
        self,
        steps_folder: Path,
        snapshots_folder: Path | None,
        templates: Sequence[Template],
        settings: EngineSettings,
        identity: SessionIdentity,
    ) -> None:
        self.identity = identity
        self.refusal = ""
        self.delivered_seq = 0
        self.path = steps_folder / f"{identity.session_id}.jsonl"
        self.record_path = steps_folder / f"{identity.session_id}.session.json"
        self._snapshots = snapshots_folder
        self._digest = template_digest(templates)
        self._engine = SessionEngine(templates, settings, identity)
        self._n_steps = self._steps_bytes = 0
        self._waiting: list[bytes] = []
        if snapshots_folder is not None:
            self._resume(snapshot_path(snapshots_folder, identity.session_id), templates)
        self._cut_back()

    @property
    def engine(self) -> SessionEngine:
        """The engine with its counts and its state."""
        return self._engine

    def push(self, comms: np.ndarray, records: np.ndarray) -> list[StepSummary]:
        """The steps that become final; ``comms`` are all rows so far (``COMM_DTYPE``)."""
        self._engine.add_comms(comms)
        steps = self._engine.push(records)
        if len(records):
            self.delivered_seq = max(self.delivered_seq, int(records["seq"][-1]))
        return self._take(steps)

    def finish(self) -> list[StepSummary]:
        """The steps that the end of the process makes final; everything is saved."""
        steps = self._take(self._engine.finish())
        self.save()
        return steps

    def save(self) -> None:
        """Put the steps so far on disk, then the snapshot behind them, then the record.

        Raises InputError when the place cannot be written.
        """
        try:
            with self.path.open("r+b") as file:
                file.seek(self._steps_bytes)
                file.writelines(self._waiting)
                file.truncate()
                self._steps_bytes = file.tell()
                if self._snapshots is not None:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise unwritable_run(self.path, error) from error
        self._waiting.clear()
        if self._snapshots is not None:
            path = snapshot_path(self._snapshots, self.identity.session_id)
            write_snapshot(path, self._snapshot())
        self._write_record()

    def record(self) -> SessionRecord:
        """What became of the session so far."""
        engine, identity = self._engine, self.identity
        return SessionRecord(
            session_id=identity.session_id, global_rank=identity.global_rank,
            template=engine.state.template, n_steps=self._n_steps,
            real_minus_mono_ns=identity.real_minus_mono_ns,
            broken=engine.state.broken, tally=engine.tally.as_dict(), scores=engine.selection,
        )  # fmt: skip

    def _take(self, steps: list[StepSummary]) -> list[StepSummary]:
        self._n_steps += len(steps)
        if steps:
            self._waiting.append(_ENCODER.encode_lines(steps))
        return steps

    def _snapshot(self) -> SessionSnapshot:
        return SessionSnapshot(
            engine=self._engine.snapshot(), delivered_seq=self.delivered_seq,
            n_steps=self._n_steps, steps_bytes=self._steps_bytes, templates=self._digest,
        )  # fmt: skip

    def _resume(self, path: Path, templates: Sequence[Template]) -> None:
        try:
            found = read_snapshot(path)
            if found is None or (refusal := self._differs(found)):
                self.refusal = "" if found is None else f"{path}: {refusal}"
                return
            self._engine = SessionEngine.resume(found.engine, templates)
        except InputError as error:
            self.refusal = str(error)
            return
        except ValueError as error:  # bytes of another length than their records have
            self.refusal = f"{path}: does not fit together: {error}"
            return
        self.delivered_seq, self._n_steps = found.delivered_seq, found.n_steps
        self._steps_bytes = found.steps_bytes

    def _differs(self, found: SessionSnapshot) -> str:
        """Why steps that go on from there would not be those of a rebuild; "" if they would."""
        if found.templates != self._digest:
            return "made with other templates"
        if found.engine.settings != self._engine.settings:
            return "made with other settings"
        if found.engine.identity != self.identity:
            return "made when less was known of the session"
        size_bytes = self.path.stat().st_size if self.path.is_file() else -1
        return "the steps before it are not there" if size_bytes < found.steps_bytes else ""

    def _cut_back(self) -> None:
        """Make the steps file end where the snapshot does."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(self._steps_bytes)
        except OSError as error:
            raise unwritable_run(self.path, error) from error

    def _write_record(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self.record())) + b"\n"
        try:
            write_whole(self.record_path, data)
        except OSError as error:
            raise unwritable_run(self.record_path, error) from error
