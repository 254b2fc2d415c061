"""How processes ended, and which of them failed first: what came after it is its consequence.

A launcher that loses one rank ends all others, and their peers fail in the op that they were in.
Only the first rank that failed by itself is an origin: not one that was asked to end, not one
whose own op had failed or that gave up waiting in one, and nobody when several were killed at once.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.format.layout import SLOT_DTYPE, SLOT_IN_FLIGHT
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest, ProcessEnd
from comminsight.model.ops import OpState

TOGETHER_NS = 1_000_000_000  # killed by one hand
ASKED_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
CRASHES = frozenset(
    {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)  # a watchdog that gives up waiting aborts, or exits with a code
BROKEN = (OpState.FAILED, OpState.ABORTED)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first failure of a run: the session, and the moment in its node's monotonic clock."""

    session_id: str
    ended_mono_ns: int
    later: frozenset[str]  # sessions that ended after it


def known_ends(manifests: Sequence[LaunchManifest]) -> dict[str, ProcessEnd]:
    """The end of each session that a launcher saw end."""
    return {end.session_id: end for m in manifests for end in m.ends}


def exit_statuses(manifests: Sequence[LaunchManifest]) -> dict[str, str]:
    """By session: ``exit code 1`` or ``signal 9 (SIGKILL)``; nothing where it is not known."""
    ends = known_ends(manifests).values()
    return {end.session_id: text for end in ends if (text := status_text(end))}


def status_text(end: ProcessEnd) -> str:
    """The status in words, "" when it is not known."""
    if end.exit_signal > 0:
        known = {int(s): s.name for s in signal.Signals}
        return f"signal {end.exit_signal} ({known.get(end.exit_signal, 'unnamed')})"
    return f"exit code {end.exit_code}" if end.exit_code >= 0 else ""


def first_failure(
    sessions: Sequence[SessionData], manifests: Sequence[LaunchManifest]
) -> Failure | None:
    """The failure that everything else followed from; None when no single one can be told."""
    times = end_times(manifests)
    own = {s.identity.session_id: s for s in sessions if s.identity.session_id in times}
    ordered = sorted(own, key=lambda name: times[name][0])
    failed = [name for name in ordered if is_failure(times[name][1])]
    if not failed or len(own) < 2:
        return None
    first, others = failed[0], failed[1:]
    begin_ns, end = times[first]
    if end.exit_signal in {-1, *ASKED_TO_END} or is_victim(own[first], end):
        return None
    at_once = [n for n in others if times[n][0] - begin_ns <= TOGETHER_NS]
    if any(is_same_fate(end, times[n][1], own[n]) for n in at_once):
        return None
    later = frozenset(name for name in own if times[name][0] > begin_ns)
    return Failure(first, end.ended_mono_ns, later) if later else None


def end_times(manifests: Sequence[LaunchManifest]) -> dict[str, tuple[int, ProcessEnd]]:
    """Wall time in nanoseconds and the end, by session: comparable over nodes as far as their
    clocks agree."""
    return {
        end.session_id: (m.started_real_ns + end.ended_mono_ns - m.started_mono_ns, end)
        for m in manifests
        for end in m.ends
    }


def ended_well(session_id: str, own: Sequence[LaunchManifest]) -> bool:
    """True when the process is known to have ended with 0: by its own end, or where that was not
    seen by those of all launchers of its node (``own``)."""
    seen = [end for m in own for end in m.ends if end.session_id == session_id and status_text(end)]
    if seen:
        return not is_failure(seen[-1])
    return all((m.exit_code, m.exit_signal) == (0, 0) for m in own)


def is_failure(end: ProcessEnd) -> bool:
    """True unless it ended with 0."""
    return (end.exit_code, end.exit_signal) != (0, 0)


def is_victim(session: SessionData, end: ProcessEnd) -> bool:
    """True when the process may have ended because of others: an op of its own had failed, or it
    was waiting in one and was not brought down by a crash."""
    is_waiting = bool(len(session.in_flight)) and end.exit_signal not in CRASHES
    return is_waiting or bool(np.isin(session.records["state"], BROKEN).any())


def is_same_fate(end: ProcessEnd, other: ProcessEnd, session: SessionData) -> bool:
    """True when ``session``, which ended at once with the first, ended by what ended that one: the
    same signal, or the same exit code though nothing that it was in had failed."""
    is_same = (end.exit_code, end.exit_signal) == (other.exit_code, other.exit_signal)
    return is_same and (end.exit_signal > 0 or not is_victim(session, other))


def as_of(sessions: Sequence[SessionData], failure: Failure) -> tuple[SessionData, ...]:
    """The sessions as they stood at the failure: those that ended later lived and were in the ops
    that failed under them."""
    return tuple(before_consequences(session, failure) for session in sessions)


def before_consequences(session: SessionData, failure: Failure) -> SessionData:
    """One session at that moment."""
    name = session.identity.session_id
    if name == failure.session_id:
        return replace(session, liveness=Liveness.DEAD)
    if name not in failure.later:
        return session
    is_broken = np.isin(session.records["state"], BROKEN)
    broken = np.zeros(int(is_broken.sum()), SLOT_DTYPE)
    broken["record"] = session.records[is_broken]
    broken["state_word"] = SLOT_IN_FLIGHT
    return replace(
        session,
        liveness=Liveness.ALIVE,
        records=session.records[~is_broken],
        in_flight=np.concatenate([session.in_flight, broken]),
    )
