"""The hang view of a run's sessions, as they stand now or as they stood when they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from comminsight.analysis.call_order import skipped_ops
from comminsight.capture.session import SessionData
from comminsight.diagnosis.unlaunched import with_awaited
from comminsight.format.layout import SLOT_OVERDUE
from comminsight.model.hang import HangEvent, Liveness, RankState, Stack
from comminsight.model.records import is_op
from comminsight.model.tally import NOT_READ
from comminsight.pipeline.call_order import ordered_calls
from comminsight.pipeline.ends import BROKEN
from comminsight.pipeline.finished_ops import finished_ops
from comminsight.pipeline.hang_event import RankView, hang_event
from comminsight.pipeline.load import world_size
from comminsight.pipeline.pauses import is_silent
from comminsight.pipeline.trace import joined_communicators
from comminsight.semantics.comm_table import MAX_COMM_INDEX


def rank_view(
    session: SessionData, comm_ids: np.ndarray, exit_status: str = "", *, has_own_clock: bool = True
) -> RankView:
    """One session as the hang view takes it; ``has_own_clock``: others are on another node."""
    slots = session.in_flight
    known_from_seq = 0 if is_silent(session) else session.complete_from_seq
    return RankView(
        state=RankState(
            global_rank=session.identity.global_rank,
            liveness=session.liveness,
            host=session.identity.host,
            pid=session.identity.pid,
            last_event_ns=last_call_ns(session),
            exit_status=exit_status,
            is_whole=known_from_seq == 1,
            records_lost=session.tally.sum_of(NOT_READ),
            last_sign_ns=0 if has_own_clock else last_seen_ns(session),
            is_cut=session.is_cut,
            has_broken=bool(np.isin(session.records["state"], BROKEN).any()),
        ),
        records=session.records,
        in_flight=np.ascontiguousarray(slots["record"]),
        owner_tids=slots["owner_tid"],
        is_overdue=(slots["state_word"] & 0xFF) == SLOT_OVERDUE,
        comm_ids=comm_ids,
        complete_from_seq=known_from_seq,
        slots=slots,
        comm_sizes=comm_sizes(session.comms),
        unseen_calls=session.unseen_calls,
    )


def last_call_ns(session: SessionData) -> int:
    """When the program last began an op. That one was given up, that counters were written or the
    recorder was closed is nothing that the program went on with."""
    records = session.records
    begun = (records[is_op(records)], session.in_flight["record"])
    return max(int(rows["start_ns"].max(initial=0)) for rows in begun)


def last_seen_ns(session: SessionData) -> int:
    """When the recorder last showed that it lived; 0 where its black box is not at hand, unless it
    closed its records: what it did after the last of them is not known."""
    if session.is_cut:
        return 0
    last_ns = int(session.records["end_ns"].max(initial=0))
    is_told = session.heartbeat_mono_ns or session.liveness is Liveness.CLOSED
    return max(session.heartbeat_mono_ns, last_ns) if is_told else 0


def comm_sizes(comms: np.ndarray) -> np.ndarray:
    """Members of each communicator by ``comm_index``, 0 where no row tells."""
    known = comms[comms["comm_index"] < MAX_COMM_INDEX]
    sizes = np.zeros(int(known["comm_index"].max(initial=0)) + 1, np.int64)
    sizes[known["comm_index"]] = known["comm_size"]
    return sizes


def observe(
    sessions: Sequence[SessionData],
    *,
    now_mono_ns: int,
    now_real_ns: int,
    overdue_limit_ns: int,
    stacks: Mapping[int, Stack] | None = None,
    exit_statuses: Mapping[str, str] | None = None,
    is_past: bool = False,
) -> HangEvent:
    """Who is where at ``now``: the ops in flight and the progress of every session.

    ``exit_statuses`` are by session, for processes whose end was seen; ``is_past``: the processes
    have ended since.
    """
    communicators, comm_ids = joined_communicators(sessions)
    ended = exit_statuses or {}
    has_own_clock = len({s.identity.boot_id for s in sessions}) > 1
    views = [
        rank_view(s, comm_ids[name], ended.get(name, ""), has_own_clock=has_own_clock)
        for s in sessions
        for name in [s.identity.session_id]
    ]
    event = hang_event(
        views,
        now_mono_ns=now_mono_ns,
        now_real_ns=now_real_ns,
        overdue_limit_ns=overdue_limit_ns,
        world_size=world_size(sessions),
        stacks=stacks,
        communicators=communicators,
    )
    calls = ordered_calls(views if event.in_flight else (), communicators)
    event = msgspec.structs.replace(
        event,
        is_past=is_past,
        finished=finished_ops(views, event.in_flight, now_mono_ns),
        skipped=tuple(skipped_ops(calls, communicators, event.progress)),
    )
    return with_awaited(event, communicators)


def last_sign_ns(sessions: Sequence[SessionData]) -> int:
    """The latest instant that any session is known to have lived at, 0 without any."""
    signs = [s.heartbeat_mono_ns for s in sessions]
    ends = [int(s.records["end_ns"].max(initial=0)) for s in sessions]
    return max([0, *signs, *ends, *map(last_mark_ns, sessions)])


def last_mark_ns(session: SessionData) -> int:
    """When the last overdue op was found so: not before its limit had passed."""
    slots = session.in_flight
    overdue = slots["record"][(slots["state_word"] & 0xFF) == SLOT_OVERDUE]
    limit_ns = session.settings.get("overdue_limit_ns", 0)
    return int(overdue["start_ns"].max()) + limit_ns if len(overdue) else 0


def killed(sessions: Sequence[SessionData]) -> tuple[int, ...]:
    """Ranks whose process is gone without having closed its recorder."""
    return tuple(s.identity.global_rank for s in sessions if s.liveness is Liveness.DEAD)
