"""How a run ended whose processes are gone: killed from outside, one death first, or in order.

A run of which every process died is *killed*; where some live on, only the dead are named. What
was in flight at death is stated, since it is read from what the dead processes left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.diagnosis import codes
from comminsight.diagnosis.chain import hang_chain, hang_coverage, op_name, op_ref
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.death_actions import death_actions, death_of
from comminsight.diagnosis.first_failure import TOGETHER_NS
from comminsight.diagnosis.hang_evidence import absence
from comminsight.diagnosis.presence import Observed, observe
from comminsight.model.hang import HangEvent, Liveness, Presence, RankState
from comminsight.model.ranges import missing_ranks
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, MessageParam, Verdict

RULE = "killed"

ENDED_WELL = "exit code 0"


def judge_killed(event: HangEvent, communicators: Sequence[Communicator]) -> Verdict:
    """JOB_KILLED when all seen processes died together, RANK_DEAD when one was silent long before
    the others or when others live, HEALTHY when all ended in order with nothing in flight."""
    observed = observe(event, communicators)
    dead = [state for state in event.ranks if _is_dead(state)]
    if not dead:
        return _without_death(observed)
    cause, culprits = _cause(event, dead)
    if cause is Cause.JOB_KILLED and any(s.is_cut and not s.exit_status for s in dead):
        cause = Cause.NO_VERDICT  # who was gone first stands in their black boxes
    oldest = observed.instances[0] if observed.instances else None
    silent = sorted(state.global_rank for state in dead if not state.exit_status)
    return Verdict(
        rule=RULE,
        cause=cause,
        confidence=_confidence(cause, silent),
        coverage=hang_coverage(event),
        culprits=culprits,
        victims=_victims(event, culprits) if cause is Cause.RANK_DEAD else (),
        comm_id=oldest.key.comm_id if oldest is not None else -1,
        first_bad_op=op_ref(oldest) if oldest is not None else None,
        measures={"n_in_flight": float(len(event.in_flight))},
        chain=hang_chain(observed, oldest, culprits),
        evidence=(*_absent(observed, cause), *_deaths(dead), *_in_flight_at_death(observed, dead)),
        missing=tuple(_missing(event, silent)),
        next_actions=tuple(
            death_actions(
                death_of(one.global_rank, one)
                for one in dead
                if not culprits or one.global_rank in culprits
            )
        ),
    )


def _confidence(cause: Cause, silent: list[int]) -> Confidence:
    if cause is Cause.NO_VERDICT:
        return Confidence.NONE
    return Confidence.MEDIUM if silent else Confidence.HIGH


def _cause(event: HangEvent, dead: list[RankState]) -> tuple[Cause, tuple[int, ...]]:
    failed = _failed_by_themselves(dead)
    if len(dead) < len(event.ranks):
        waiting = {op.global_rank for op in event.waiting} if event.is_over else set()
        # who was in an op and was killed with the job began nothing; who failed there, may have
        waiting -= {state.global_rank for state in failed}
        lost = {s.global_rank for s in dead if s.has_broken} if event.is_over else set()
        ranks = tuple(sorted({state.global_rank for state in dead} - waiting - lost))
        if lost and not ranks:
            return Cause.NO_VERDICT, ()
        return (Cause.RANK_DEAD, ranks) if ranks else (Cause.JOB_KILLED, ())
    # a rank that failed by itself has a status of its own among the killed
    if failed and len(failed) < len(dead):
        first_ns = min(_last_ns(state) for state in failed)
        ranks = tuple(s.global_rank for s in failed if _last_ns(s) - first_ns <= TOGETHER_NS)
        return Cause.RANK_DEAD, tuple(sorted(ranks))
    # one had failed because of another, that was killed before it had come to its own end
    if not failed and 0 < len(_with_own_status(dead)) < len(dead):
        return Cause.NO_VERDICT, ()
    return Cause.JOB_KILLED, ()


def has_failed_first(event: HangEvent) -> bool:
    """True when some ranks ended by themselves while all others were killed."""
    dead = [state for state in event.ranks if _is_dead(state)]
    failed = _failed_by_themselves(dead)
    return len(dead) == len(event.ranks) and 0 < len(failed) < len(dead)


def _failed_by_themselves(dead: list[RankState]) -> list[RankState]:
    """With a status of their own, and not because an op had failed under them."""
    return [state for state in _with_own_status(dead) if not state.has_broken]


def _with_own_status(dead: list[RankState]) -> list[RankState]:
    return [state for state in dead if state.exit_status and not _is_killed(state)]


def _last_ns(state: RankState) -> int:
    """When it was last known to live."""
    return max(state.last_sign_ns, state.last_event_ns)


def _is_dead(state: RankState) -> bool:
    """True unless it lives or is known to have ended well, be it without closing its recorder."""
    return state.liveness is Liveness.DEAD and state.exit_status != ENDED_WELL


def _is_killed(state: RankState) -> bool:
    """True for a signal that somebody else sends; a crash is the process's own."""
    status = state.exit_status.lower()
    return any(name in status for name in ("sigkill", "sigterm", "sigint", "sighup")) or any(
        status.endswith(f"signal {number}") for number in (9, 15, 2, 1)
    )


def _victims(event: HangEvent, culprits: tuple[int, ...]) -> tuple[int, ...]:
    waiting = {op.global_rank for op in event.waiting}
    return tuple(sorted(waiting - set(culprits)))


def _deaths(dead: list[RankState]) -> Iterator[Evidence]:
    for state in dead:
        said = message(codes.DIED, rank=state.global_rank, exit_status=state.exit_status)
        yield Evidence(kind="process", message=said, global_rank=state.global_rank)


def _in_flight_at_death(observed: Observed, dead: list[RankState]) -> Iterator[Evidence]:
    ranks = {state.global_rank for state in dead}
    for instance in observed.instances:
        for op in instance.ops:
            if op.global_rank in ranks:
                params: dict[str, MessageParam] = {
                    "rank": op.global_rank, "op": op_name(op.op),
                    "comm": instance.communicator.label, "match_seq": op.match_seq,
                }  # fmt: skip
                is_cut = observed.states[op.global_rank].is_cut
                said = (
                    message(codes.AT_CUT, **params)
                    if is_cut
                    else message(codes.AT_DEATH, **params, age_ns=op.age_ns)
                )
                yield Evidence(
                    kind="record", message=said, global_rank=op.global_rank, comm_id=op.comm_id,
                    op_seq=op.op_seq, match_seq=op.match_seq,
                )  # fmt: skip


def _absent(observed: Observed, cause: Cause) -> Iterator[Evidence]:
    """Who had not entered what others were in when the job was ended: a fact, and no cause."""
    for instance in observed.instances[:1] if cause is not Cause.RANK_DEAD else ():
        if ranks := instance.ranks(Presence.ABSENT):
            yield absence(observed, instance, ranks)


def _missing(event: HangEvent, silent: list[int]) -> Iterator[Message]:
    if silent:
        yield message(codes.MISSING_EXIT_STATUS, ranks=silent)
    seen = {state.global_rank for state in event.ranks}
    unseen = missing_ranks(event.world_size, seen)
    if unseen:
        yield message(codes.MISSING_RANKS, ranks=list(unseen))
    if cut := sorted(state.global_rank for state in event.ranks if state.is_cut):
        yield message(codes.MISSING_BOX, ranks=cut)


def _without_death(observed: Observed) -> Verdict:
    is_clean = not observed.event.waiting and bool(observed.event.ranks)
    waiting = sorted({op.global_rank for op in observed.event.waiting})
    return Verdict(
        rule=RULE,
        cause=Cause.HEALTHY if is_clean else Cause.NO_VERDICT,
        confidence=Confidence.HIGH if is_clean else Confidence.NONE,
        coverage=hang_coverage(observed.event),
        missing=() if is_clean else (message(codes.MISSING_ORIGIN, ranks=waiting),),
    )
