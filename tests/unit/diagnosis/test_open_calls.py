"""Who deviates from the order of most, how far groups came, and which hosts hold others up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.logged_hosts import with_logged_hosts
from comminsight.diagnosis.printed_first import with_printed_first
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import ClockKind, LogCode, LogEvent, LogTime
from comminsight.model.topology import CommRole
from comminsight.model.verdict import Cause, MessageParam, Verdict
from tests.unit.diagnosis.events import AR, NOW, S, came, comm, event, op, state


def params(verdict: Verdict, code: str) -> list[dict[str, MessageParam]]:
    return [one.message.params for one in verdict.evidence if one.message.code == code]


def launched(orders: dict[int, str]) -> HangEvent:
    """Each rank has an op of groups a and b open, in its order; the second is queued behind."""
    waiting: list[InFlightOp] = []
    for rank, order in orders.items():
        for place, name in enumerate(order):
            one = op(rank, "ab".index(name), AR, 7)
            start_ns = one.start_ns + place * S
            waiting.append(replace(one, start_ns=start_ns, is_queued=place > 0))
    return replace(event(len(orders), waiting), tells_ends=True)


@pytest.mark.parametrize(
    ("orders", "cause", "culprits"),
    [
        ({0: "ab", 1: "ab", 2: "ba", 3: "ab"}, Cause.ORDER_INVERSION, (2,)),
        ({0: "ba", 1: "ab", 2: "ab", 3: "ab", 4: "ba"}, Cause.ORDER_INVERSION, (0, 4)),
        ({0: "ba", 1: "ab", 2: "ab"}, Cause.ORDER_INVERSION, (0,)),
    ],
)
def test_the_minority_called_them_in_another_order(
    orders: dict[int, str], cause: Cause, culprits: tuple[int, ...]
) -> None:
    groups = tuple(comm(k, range(len(orders))) for k in range(2))
    verdict = judge_hang(launched(orders), groups)
    assert (verdict.cause, verdict.culprits) == (cause, culprits)
    calls = {one["rank"]: one["calls"] for one in params(verdict, codes.CALL_ORDER)}
    first = [str(calls[rank][0]) for rank in culprits]  # type: ignore[index]
    assert all(text.startswith("all_reduce #7 (DP mesh_dp#1)") for text in first)


MESH = (
    comm(0, (0, 1), CommRole.TP), comm(1, (2, 3), CommRole.TP), comm(2, (0, 2)), comm(3, (1, 3)),
)  # fmt: skip
CHAIN = ([op(0, 0, AR, 5), op(2, 2, AR, 3), op(3, 3, AR, 3)],
         [came(1, 0, 4), came(0, 2, 2), came(1, 3, 2)])  # fmt: skip


def test_how_far_groups_came_begins_with_that_of_the_culprit() -> None:
    hosts = {rank: state(rank, host="ab"[rank // 2]) for rank in range(4)}
    verdict = judge_hang(event(4, *CHAIN, states=hosts), MESH)
    assert verdict.culprits == (1,)
    rows = params(verdict, codes.GROUP_BEHIND)
    assert [(one["comm"], one["last"], one["ranks"], one["n_waiting"]) for one in rows] == [
        ("TP mesh_tp#0", 4, [1], 1), ("DP mesh_dp#3", 2, [1], 1), ("DP mesh_dp#2", 2, [0], 1),
    ]  # fmt: skip
    (told,) = params(verdict, codes.HOSTS_BEHIND)
    assert (told["hosts"], told["n_waiting"]) == (["a"], [2])


def test_one_host_and_one_group_need_no_list() -> None:
    same = {rank: state(rank, host="a") for rank in range(4)}
    verdict = judge_hang(event(4, *CHAIN, states=same), MESH)
    assert params(verdict, codes.HOSTS_BEHIND) == []
    alone = judge_hang(event(2, [op(0, 0, AR, 5)], [came(1, 0, 4)]), MESH[:1])
    assert params(alone, codes.GROUP_BEHIND) == []


def line(group: str, minute: int, rank: int, *, zoned: bool = True) -> JobLog:
    kind = ClockKind.ZONED if zoned else ClockKind.NONE
    time = LogTime(kind, NOW + minute * 60 * S, 1000 if zoned else -1)
    event_ = LogEvent(
        code=LogCode.TORCH_PROGRESS, file=f"{rank}.log", line=1, text="Timeout", time=time,
        values={"pg": group},
    )  # fmt: skip
    return JobLog(file=f"{rank}.log", rank=rank, events=(event_,))


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([line("mesh_dp", 1, 2)], ["mesh_dp"]),
        ([line("mesh_dp", 1, 2), line("mesh_tp", 5, 0)], ["mesh_dp"]),
        ([line("mesh_dp", 5, 2), line("mesh_tp", 1, 0)], []),  # its own group printed first
        ([line("mesh_dp", 1, 2, zoned=False), line("mesh_tp", 5, 0, zoned=False)], []),
        ([line("a group of another job", 1, 2)], []),
        ([], []),
    ],
)
def test_the_group_that_printed_first(logs: list[JobLog], expected: list[str]) -> None:
    hang = event(4, *CHAIN)
    job = JobEvidence(hang=hang, communicators=MESH, logs=tuple(logs))
    verdict = with_printed_first(judge_hang(hang, MESH), job)
    assert [one["printed"] for one in params(verdict, codes.PRINTED_FIRST)] == expected
    assert verdict.culprits == (1,)


def test_hosts_by_logs_only_where_nobody_told_them() -> None:
    states = {0: state(0, host="known"), 1: state(1, host="")}
    hang = event(2, [], states=states)
    lines = tuple(
        LogEvent(
            code=LogCode.NCCL_VERSION, file=f"{r}.log", line=1, text="v", host="other", pid=5 + r
        )
        for r in range(2)
    )
    logs = [JobLog(file=f"{r}.log", rank=r, events=(lines[r],)) for r in range(2)]
    assert [one.host for one in with_logged_hosts(hang, logs).ranks] == ["known", "other"]
    assert with_logged_hosts(hang, []) is hang
