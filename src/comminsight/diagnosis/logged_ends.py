"""What logs say of the ends of ranks, beside the state in which the ranks were last seen.

A rank that failed first by its log is dead in the hang, and one that ended in order has left it;
ranks that were ended because of others are left as they are. So one verdict rests on both.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.log_ends import RankLine
from comminsight.diagnosis import codes
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.death_actions import Death, death_actions, death_of
from comminsight.diagnosis.log_origin import LogOrigin
from comminsight.model.hang import HangEvent, Liveness, RankState
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, Evidence, Message, Verdict

MAX_FLAG_ELEMENTS = 1


def with_logged_ends(event: HangEvent, origin: LogOrigin) -> HangEvent:
    """The event with the ranks that failed first dead, and those that left in order closed."""
    ended = {line.rank: Liveness.DEAD for line in origin.first}
    ended |= {line.rank: Liveness.CLOSED for line in origin.left}
    if not ended:
        return event
    states = {state.global_rank: state for state in event.ranks}
    for rank, liveness in ended.items():
        state = states.get(rank, RankState(global_rank=rank, liveness=liveness))
        status = status_of_rank(origin, rank)
        states[rank] = replace(
            state,
            liveness=liveness,
            exit_status=state.exit_status or status,
            host=state.host or origin.ranks.host_of(rank),
        )
    return replace(event, ranks=tuple(states[rank] for rank in sorted(states)))


def with_log_lines(verdict: Verdict, event: HangEvent, origin: LogOrigin) -> Verdict:
    """The verdict on the hang with the lines of logs that it rests on."""
    first = [line for line in origin.first if line.rank in verdict.culprits]
    is_death = verdict.cause is Cause.RANK_DEAD
    evidence = [fault_evidence(line) for line in first] if is_death else []
    evidence += [*flag_evidence(verdict, event), *not_ended(origin)]
    actions: list[Message] = []
    if is_death and set(verdict.culprits) & {one.rank for one in (*origin.first, *origin.left)}:
        states = {state.global_rank: state for state in event.ranks}
        actions += death_actions(
            logged_death(origin, rank, states.get(rank)) for rank in verdict.culprits
        )
    told = () if actions else verdict.next_actions
    if stuck := sorted({entry.global_rank for entry in not_ended(origin)}):
        actions.append(message(logs.END_HARD, ranks=stuck))
    return replace(
        verdict,
        evidence=(*verdict.evidence, *evidence),
        next_actions=(*told, *actions),
    )


def logged_death(origin: LogOrigin, rank: int, state: RankState | None = None) -> Death:
    """The end of a rank by its log, or by its ``state`` where no log tells."""
    lines = (line for line in (*origin.first, *origin.left) if line.rank == rank)
    known = death_of(rank, state)
    return replace(
        known,
        status=known.status or status_of_rank(origin, rank),
        host=known.host or origin.ranks.host_of(rank),
        line=next(lines, None),
    )


def status_of_rank(origin: LogOrigin, rank: int) -> str:
    """How the process of the rank ended, as a launcher or the kernel tells it; "" unknown."""
    told = origin.ends.statuses.get(rank, "")
    lines = (line for line in (*origin.first, *origin.left) if line.rank == rank)
    return told or next((line.fault.status for line in lines), "")


def fault_evidence(line: RankLine) -> Evidence:
    """The line with which a rank failed, word for word."""
    event, fault = line.event, f"fault.{line.fault.name}"
    if line.rank < 0:
        said = message(
            logs.NAMELESS_FAULT, fault=fault, source=event.file, line=event.line,
            host=event.host, pid=event.pid,
        )  # fmt: skip
    else:
        said = message(
            logs.FIRST_ERROR, rank=line.rank, fault=fault, source=event.file, line=event.line
        )
    return Evidence(kind="log", message=said, global_rank=line.rank, text=event.text)


def not_ended(origin: LogOrigin) -> Iterator[Evidence]:
    """Ranks that did not end when their launcher asked them to."""
    for rank, event in sorted(origin.ends.unyielding.items()):
        said = message(logs.NOT_ENDED, ranks=[rank], source=event.file, line=event.line)
        yield Evidence(kind="log", message=said, global_rank=rank, text=event.text)


def flag_evidence(verdict: Verdict, event: HangEvent) -> Iterator[Evidence]:
    """That the op is a barrier or a flag, which moves nothing worth looking at."""
    bad = verdict.first_bad_op
    if bad is None:
        return
    place = bad.comm_id, bad.match_seq
    ops = [op for op in event.in_flight if (op.comm_id, op.match_seq) == place]
    is_barrier = bool(ops) and all(op.op == Op.BARRIER for op in ops)
    is_flag = bool(ops) and all(
        op.op == Op.ALL_REDUCE and 0 < op.count <= MAX_FLAG_ELEMENTS for op in ops
    )
    if is_barrier or is_flag:
        said = message(logs.FLAG_OP, op=bad.op, n_elements=max(op.count for op in ops))
        yield Evidence(kind="record", message=said, comm_id=bad.comm_id, match_seq=bad.match_seq)


def echo_evidence(origin: LogOrigin) -> Iterator[Evidence]:
    """Who only repeats that others fell silent, and in how many lines."""
    n_lines = sum(line.rank in origin.echoing and line.fault.name == "echo"
                  for line in origin.ends.lines)  # fmt: skip
    if n_lines:
        said = message(logs.LOG_ECHOES, ranks=list(origin.echoing), n_lines=n_lines)
        yield Evidence(kind="log", message=said)


def missing_order(origin: LogOrigin) -> Iterator[Message]:
    """What keeps the logs from naming one rank."""
    if origin.candidates:
        yield message(logs.MISSING_FAULT_ORDER, ranks=[line.rank for line in origin.candidates])
    for line in origin.nameless[:4]:
        yield message(logs.MISSING_PROCESS_RANK, pid=line.event.pid, host=line.event.host)


def exit_evidence(origin: LogOrigin, rank: int) -> Iterator[Evidence]:
    """How the process ended, where somebody saw it."""
    if status := status_of_rank(origin, rank):
        said = message(codes.DIED, rank=rank, exit_status=status)
        yield Evidence(kind="process", message=said, global_rank=rank)
