"""Notes of a report: what was set aside, what could not be read, which template won."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from comminsight.diagnosis.clock_drift import clock_drift_notes
from comminsight.model.calibration import CalibrationState, StepView
from comminsight.model.hang import HangEvent, StackSource
from comminsight.model.manifest import LaunchManifest
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message, MessageParam, Verdict
from comminsight.pipeline.launches import launch_notes
from comminsight.pipeline.load import LoadedRun
from comminsight.pipeline.lost import loss_notes
from comminsight.pipeline.nccl_notes import nccl_notes
from comminsight.pipeline.pauses import pause_messages
from comminsight.pipeline.rebuild import SessionSteps


def run_notes(
    loaded: LoadedRun,
    manifests: Sequence[LaunchManifest],
    rebuilt: Mapping[str, SessionSteps],
    unreadable: Sequence[str],
    trace: RunTrace,
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
    if loaded.other_runs:
        names = sorted({s.identity.run_id for s in loaded.other_runs})
        notes.append(Message("note.other_runs", {"n_runs": len(names), "first": names[0]}))
    notes += launch_notes(loaded.earlier_launches)
    notes += pause_messages(loaded.sessions, "note.recording_off")
    notes += loss_notes(loaded.sessions)
    notes += loaded.notes
    notes += nccl_notes(loaded.sessions)
    notes += broken_notes(loaded, rebuilt)
    notes += clock_drift_notes(trace)
    notes += [Message("note.launcher", {"text": text}) for m in manifests for text in m.notes]
    notes += [note for m in manifests for note in m.messages]
    return tuple(notes)


def calibration_notes(state: CalibrationState) -> tuple[Message, ...]:
    """That the step numbers are corrected ones, or why an applied correction is not shown."""
    entry = state.entry
    if state.stale:
        return (Message("note.calibration_stale", {"reason": f"stale.{state.stale}"}),)
    if state.view is StepView.RAW or entry is None or entry.counts is None:
        return ()
    counts = entry.counts
    said: dict[str, MessageParam] = {
        "at_real_ns": entry.at_real_ns, "who": entry.who, "n_renumbered": counts.n_renumbered,
    }  # fmt: skip
    notes = [Message("note.calibrated", said)]
    if counts.n_raw:
        notes.append(Message("note.left_raw", {"n_steps": counts.n_raw}))
    if counts.n_parts > 1:
        notes.append(Message("note.step_parts", {"n_parts": counts.n_parts}))
    return tuple(notes)


def broken_notes(loaded: LoadedRun, rebuilt: Mapping[str, SessionSteps]) -> list[Message]:
    """Which ranks have no more steps and why, since the first of them was given up."""
    found: dict[str, list[tuple[int, int, int]]] = {}  # (time into the session, op, rank)
    for session in loaded.sessions:
        own, identity = rebuilt.get(session.identity.session_id), session.identity
        if own is not None and own.broken is not None:
            after_ns = max(own.broken.at_ns - identity.created_mono_ns, 0)
            found.setdefault(own.broken.reason.value, []).append(
                (after_ns, own.broken.n_ops, identity.global_rank)
            )
    return [
        Message(
            "note.no_steps_because",
            {"reason": f"broken.{reason}", "ranks": sorted(rank for _, _, rank in places),
             "after_ns": min(places)[0], "n_ops": min(places)[1]},
        )
        for reason, places in sorted(found.items())
    ]  # fmt: skip


def stack_notes(events: Sequence[HangEvent], verdicts: Iterable[Verdict]) -> tuple[Message, ...]:
    """Why stacks that a verdict shows are not the best there could be, and how to get those."""
    shown = {e.global_rank for v in verdicts for e in v.evidence if e.kind == "stack"}
    lower: dict[tuple[str, str], list[int]] = {}
    for stack in events[-1].stacks if events else ():
        if stack.global_rank in shown and stack.reason and stack.source is not StackSource.NONE:
            lower.setdefault((stack.source.value, stack.reason), []).append(stack.global_rank)
    return tuple(
        Message("note.stack_rung", {"ranks": ranks, "source": source, "reason": reason})
        for (source, reason), ranks in lower.items()
    )
