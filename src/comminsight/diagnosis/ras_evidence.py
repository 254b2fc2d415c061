"""What an answer of NCCL's RAS says about the run's ranks, as evidence.

It knows processes that left no record, and counts launches; it knows no ends. So it supports, adds
or contradicts, and each sentence says that it comes from RAS. That RAS does not reach a process is
a lead, no death: only what a node itself saw is one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from comminsight.analysis.ras import RasJoin, RasMatch
from comminsight.diagnosis import codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.model.hang import GONE, HangEvent, Liveness, RankState
from comminsight.model.ras import RasLaunches, RasPresence, RasProcess, RasRank, RasReading
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Evidence, MessageParam

MAX_PER_CODE = 4
UNREMARKABLE_STATUS = ("", "RUNNING", "NOCOMM")  # NOCOMM is told as "left"


def ras_evidence(reading: RasReading, join: RasJoin, event: HangEvent) -> list[Evidence]:
    """Gone processes first, then by communicator; at most ``MAX_PER_CODE`` of a kind, and how many
    more there are."""
    states = {state.global_rank: state for state in event.ranks}
    found = list(_gone(reading, join, states))
    for match in join.matches:
        found += _errors(match, join)
        found += _left_and_status(match, join)
        found += _launches(match, join)
        found += _members(match, join, states)
    return _bounded(found)


def entry(
    code: str, ranks: tuple[int, ...] = (), comm_id: int = -1, **params: MessageParam
) -> Evidence:
    """Evidence from RAS; ``ranks`` are global, those that are not known left out."""
    known = [rank for rank in ranks if rank != UNKNOWN_RANK]
    if "ranks" in codes.CODES[code]:
        params["ranks"] = known
    alone = known[0] if len(known) == 1 else UNKNOWN_RANK
    said = message(code, **params)
    return Evidence(kind="ras", message=said, global_rank=alone, comm_id=comm_id)


def _gone(reading: RasReading, join: RasJoin, states: dict[int, RankState]) -> Iterator[Evidence]:
    answer, is_same_moment = reading.answer, reading.observed_mono_ns > 0
    for process in answer.gone.get(RasPresence.DEAD, ()):
        ranks = join.ranks_of(process)
        yield _about(_code_of_dead(ranks, states, is_same_moment=is_same_moment), process, ranks)
    for process in answer.gone.get(RasPresence.SILENT, ()):
        yield _about(codes.RAS_SILENT, process, join.ranks_of(process))
    named = sum(map(len, answer.gone.values()))
    if (n_more := sum(answer.n_gone.values()) - named) > 0:
        yield entry(codes.RAS_GONE_UNNAMED, n_processes=n_more)


def _about(code: str, process: RasProcess, ranks: tuple[int, ...]) -> Evidence:
    return entry(code, ranks, pid=process.pid, host=process.host)


def _code_of_dead(
    ranks: tuple[int, ...], states: dict[int, RankState], *, is_same_moment: bool
) -> str:
    """What lived when it hung may have died before an answer of another moment."""
    own = {states[rank].liveness for rank in ranks if rank in states}
    if Liveness.ALIVE in own and is_same_moment:
        return codes.RAS_DEAD_BUT_ALIVE
    if own and own <= GONE:
        return codes.RAS_DEAD_TOO
    return codes.RAS_DEAD_LEAD


def _errors(match: RasMatch, join: RasJoin) -> Iterator[Evidence]:
    by_error: dict[tuple[str, str], list[RasRank]] = defaultdict(list)
    for rank in match.seen.ranks:
        if rank.init_error:
            by_error[codes.RAS_INIT_ERROR, rank.init_error].append(rank)
        if rank.async_error:
            by_error[codes.RAS_ASYNC_ERROR, rank.async_error].append(rank)
    for (code, error), ranks in by_error.items():
        yield _of_members(code, match, join, ranks, error=error)


def _left_and_status(match: RasMatch, join: RasJoin) -> Iterator[Evidence]:
    left = [rank for rank in match.seen.ranks if rank.presence is RasPresence.LEFT]
    if left:
        yield _of_members(codes.RAS_LEFT, match, join, left)
    by_status: dict[str, list[RasRank]] = defaultdict(list)
    for rank in match.seen.ranks:
        if rank.status not in UNREMARKABLE_STATUS:
            by_status[rank.status].append(rank)
    for status, ranks in by_status.items():
        yield _of_members(codes.RAS_STATUS, match, join, ranks, status=status)


def _of_members(
    code: str, match: RasMatch, join: RasJoin, ranks: list[RasRank], **params: MessageParam
) -> Evidence:
    communicator = match.communicator
    return entry(
        code, tuple(join.global_rank(match, rank) for rank in ranks), communicator.comm_id,
        members=[rank.comm_rank for rank in ranks], comm=communicator.label, **params,
    )  # fmt: skip


def _launches(match: RasMatch, join: RasJoin) -> Iterator[Evidence]:
    """Groups of members that launched another number of ops than the largest group."""
    by_op: dict[int, list[RasLaunches]] = defaultdict(list)
    for group in match.seen.launches:
        by_op[group.op].append(group)
    ranks = {rank.comm_rank: rank for rank in match.seen.ranks}
    for op, groups in by_op.items():
        largest, *others = sorted(groups, key=lambda one: (-one.n_ranks, -one.n_launched))
        for group in others:
            members = [ranks[number] for number in group.comm_ranks if number in ranks]
            yield _of_members(
                codes.RAS_LAUNCHED, match, join, members, n_members=group.n_ranks, op=op_name(op),
                launched=group.n_launched, n_others=largest.n_ranks, others=largest.n_launched,
            )  # fmt: skip


def _members(match: RasMatch, join: RasJoin, states: dict[int, RankState]) -> Iterator[Evidence]:
    """Members that left no record here, and those whose process is another one by the records."""
    for rank in match.seen.ranks:
        known = join.global_rank(match, rank)
        state, process = states.get(known), rank.process
        if process.pid < 0:
            continue
        if state is None:
            yield _of_members(
                codes.RAS_UNRECORDED, match, join, [rank],
                pid=process.pid, host=process.host, device=rank.cuda_device,
            )  # fmt: skip
        elif state.pid > 0 and state.pid != process.pid:
            yield entry(
                codes.RAS_OTHER_PROCESS, (known,), match.communicator.comm_id, rank=known,
                pid=state.pid, ras_pid=process.pid, host=process.host,
                comm=match.communicator.label,
            )  # fmt: skip


def _bounded(found: list[Evidence]) -> list[Evidence]:
    n_of: Counter[str] = Counter()
    kept = []
    for one in found:
        n_of[one.message.code] += 1
        if n_of[one.message.code] <= MAX_PER_CODE:
            kept.append(one)
    if n_more := len(found) - len(kept):
        kept.append(entry(codes.RAS_MORE, n=n_more))
    return kept
