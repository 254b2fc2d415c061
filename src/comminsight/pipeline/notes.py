"""Notes of a report: what was set aside, what could not be read, which template won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from comminsight.model.manifest import LaunchManifest
from comminsight.model.verdict import Message, MessageParam
from comminsight.pipeline.load import LoadedRun
from comminsight.pipeline.rebuild import SessionSteps


def run_notes(
    loaded: LoadedRun,
    manifests: Sequence[LaunchManifest],
    rebuilt: Mapping[str, SessionSteps],
    unreadable: Sequence[str],
) -> tuple[Message, ...]:
    """Notes in a fixed order; none when nothing is out of the ordinary."""
    notes = []
    if unreadable:
        params: dict[str, MessageParam] = {"n_files": len(unreadable), "first": unreadable[0]}
        notes.append(Message("note.unreadable", params))
    if loaded.earlier_lives:
        ranks = sorted({s.identity.global_rank for s in loaded.earlier_lives})
        notes.append(Message("note.earlier_lives", {"ranks": ranks}))
    if loaded.without_rank:
        notes.append(Message("note.without_rank", {"n_sessions": len(loaded.without_rank)}))
    broken = sorted({steps.broken for steps in rebuilt.values() if steps.broken})
    notes += [Message("note.no_steps_because", {"reason": reason}) for reason in broken]
    notes += [Message("note.launcher", {"text": text}) for m in manifests for text in m.notes]
    return tuple(notes)
