"""The moment at which ops began to fail, for runs in which no process failed first.

A rank that waits too long gives up, or its partner leaves: its op fails, the rest is consequence.
Seen from that moment, the failed op was one in flight, and whoever had not entered it was awaited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.capture.standing import is_of_nccl, standing_slots
from comminsight.diagnosis.first_failure import TOGETHER_NS
from comminsight.format.layout import SLOT_OVERDUE
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest
from comminsight.model.ops import OpState
from comminsight.model.records import is_op
from comminsight.pipeline.ends import BROKEN, known_ends


def at_first_break(
    sessions: Sequence[SessionData], manifests: Sequence[LaunchManifest]
) -> tuple[tuple[SessionData, ...], int] | None:
    """(the sessions as they stood when the first op failed for good, that instant in ns).

    None when no op did, or when the sessions share no clock to say which was first.
    """
    broken = {s.identity.session_id: last_broken(s.records) for s in sessions}
    ends_ns = [int(rows["end_ns"].min()) for rows in broken.values() if len(rows)]
    if not ends_ns or len({s.identity.boot_id for s in sessions}) > 1:
        return None
    at_ns = min(ends_ns)
    ended = {name: end.ended_mono_ns for name, end in known_ends(manifests).items()}
    # who leaves breaks its peers at once; where all give up by themselves, the order tells nothing
    has_failed = any((rows["state"] == OpState.FAILED).any() for rows in broken.values())
    gap_ns = 0 if has_failed else TOGETHER_NS
    return tuple(
        standing(s, broken[s.identity.session_id], at_ns, ended.get(s.identity.session_id), gap_ns)
        for s in sessions
    ), at_ns


def last_broken(records: np.ndarray) -> np.ndarray:
    """The ops that failed and that the session did not survive: no later op of it ended well."""
    broken = records[np.isin(records["state"], BROKEN) & (records["end_ns"] > 0)]
    is_done = (records["state"] == OpState.DONE) & is_op(records)
    last_start_ns = int(records["start_ns"][is_done].max(initial=0))
    lasting: np.ndarray = broken[broken["end_ns"] > last_start_ns]
    return lasting


def standing(
    session: SessionData, broken: np.ndarray, at_ns: int, ended_ns: int | None, gap_ns: int = 0
) -> SessionData:
    """One session at ``at_ns``: what failed under it was in flight, and it lived unless it is known
    to have ended before, or closed its recorder with nothing failed more than ``gap_ns`` before."""
    slots = standing_slots(broken, session.comms)
    # an error is what a wait ends with; what an abort cut short may have begun just before
    slots["state_word"][broken["state"] == OpState.FAILED] = SLOT_OVERDUE
    slots["state_word"][~is_of_nccl(broken, session.comms)] = SLOT_OVERDUE
    is_kept = ~np.isin(session.records["seq"], broken["seq"])
    return replace(
        session,
        liveness=liveness_at(session, at_ns, ended_ns, has_broken=len(broken) > 0, gap_ns=gap_ns),
        records=session.records[is_kept],
        in_flight=np.concatenate([session.in_flight, slots]),
    )


def liveness_at(
    session: SessionData, at_ns: int, ended_ns: int | None, *, has_broken: bool, gap_ns: int = 0
) -> Liveness:
    """Whether the process lived at that moment, as far as its end or its records tell; an orderly
    end less than ``gap_ns`` before it counts as one after it."""
    last_ns = int(session.records["end_ns"].max(initial=0))
    if gap_ns and session.liveness is Liveness.CLOSED and last_ns > at_ns - gap_ns:
        return Liveness.ALIVE
    if has_broken or last_ns > at_ns or (ended_ns is not None and ended_ns > at_ns):
        is_leaving = session.liveness is Liveness.CLOSED and not has_broken and last_ns <= at_ns
        return Liveness.CLOSED if is_leaving else Liveness.ALIVE
    return session.liveness
