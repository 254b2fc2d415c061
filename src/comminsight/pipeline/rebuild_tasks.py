"""The first stage of a rebuild, one task per session: records to steps.

A task takes paths and returns paths. Its outputs have names that follow from the session, are
written aside and put in place whole, so that it may be run again at any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from comminsight.capture.unseen import nccl_calls, unseen_of
from comminsight.model.session import SessionRecord
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.launches import Life, last_mono_ns, life_from
from comminsight.pipeline.rebuild import settings_with
from comminsight.pipeline.session_steps import SessionStepper
from comminsight.pipeline.staging import staged
from comminsight.pipeline.stored_session import StoredSession, open_stored
from comminsight.pipeline.templates import load_templates, read_text, template_files
from comminsight.semantics.template import Template

SAVE_RECORDS = 1 << 22  # steps wait in memory for at most this many records


class SegmentsTask(msgspec.Struct, frozen=True):
    """Rebuild the session whose segments lie in ``folder``."""

    folder: str
    steps_folder: str
    template_folders: tuple[str, ...] = ()


class Rebuilt(msgspec.Struct, frozen=True):
    """One session rebuilt: who and when it was, where its steps are, how many. ``is_shared``: its
    process held several ranks, so that these are not the steps of one; nothing was written.
    ``spans`` are (segment, first start, last start), ``unseen_calls`` as in ``SessionData``."""

    life: Life
    steps_path: str = ""
    record: SessionRecord | None = None
    n_records: int = 0
    is_shared: bool = False
    spans: tuple[tuple[str, int, int], ...] = ()
    unseen_calls: dict[int, int] = {}

    @property
    def identity(self) -> SessionIdentity:
        """Who it was."""
        return self.life.identity


def rebuild_segments(task: SegmentsTask) -> tuple[Rebuilt, ...]:
    """The steps of one session, written. Raises InputError when it cannot be read."""
    session = open_stored(Path(task.folder))
    if session.is_shared:
        seen_mono_ns = max(map(last_mono_ns, session.batches()))
        life = life_from(session.identity, session.comms, seen_mono_ns)
        return (Rebuilt(life, is_shared=True),)
    calls: list[np.ndarray] = []
    batches = _noting(session, calls)
    with staged(Path(task.steps_folder)) as staging:
        stepper = stepper_for(staging, task.template_folders, session.identity, session.settings)
        rebuilt = run_through(stepper, session.comms, batches, is_over=session.is_over)
    spans = tuple((path, *span) for path, span in session.spans.items())
    is_whole = session.is_closed and rebuilt.n_records == stepper.delivered_seq
    unseen_calls = unseen_of(calls) if is_whole else {}
    return (msgspec.structs.replace(rebuilt, spans=spans, unseen_calls=unseen_calls),)


def _noting(session: StoredSession, calls: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The session's records; what they tell of NCCL's numbers is added to ``calls``."""
    for batch in session.batches():
        if len(found := nccl_calls(batch, session.comms)):
            calls.append(found)
        yield batch


def stepper_for(
    staging: Path,
    template_folders: tuple[str, ...],
    identity: SessionIdentity,
    settings: dict[str, int],
) -> SessionStepper:
    """A stepper that writes aside."""
    templates = _templates(template_folders)
    return SessionStepper(staging, None, templates, settings_with(settings), identity)


def _templates(folders: tuple[str, ...]) -> Sequence[Template]:
    """The templates as their files are now: workers outlive a rebuild, and files get mended."""
    paths = [path for folder in folders for path in template_files(Path(folder))]
    return _loaded(folders, tuple((str(path), read_text(path)) for path in paths))


@lru_cache(maxsize=4)
def _loaded(folders: tuple[str, ...], _texts: tuple[tuple[str, str], ...]) -> Sequence[Template]:
    return load_templates([Path(folder) for folder in folders])


def run_through(
    stepper: SessionStepper, comms: np.ndarray, batches: Iterable[np.ndarray], *, is_over: bool
) -> Rebuilt:
    """All of the session's records through the stepper, its files put in place."""
    n_records = n_saved = seen_mono_ns = 0
    for batch in batches:
        stepper.push(comms, batch)
        n_records += len(batch)
        seen_mono_ns = max(seen_mono_ns, last_mono_ns(batch))
        if n_records - n_saved >= SAVE_RECORDS:
            stepper.save()
            n_saved = n_records
    if is_over:
        stepper.finish()
    else:
        stepper.save()
    life = life_from(stepper.identity, comms, seen_mono_ns)
    return Rebuilt(life, str(_placed(stepper)), stepper.record(), n_records)


def _placed(stepper: SessionStepper) -> Path:
    """Put the session's files where they belong, steps last; the path of the steps."""
    staging = stepper.path.parent
    for path in (stepper.record_path, stepper.path):
        os.replace(path, staging.parent / path.name)
    return staging.parent / stepper.path.name
