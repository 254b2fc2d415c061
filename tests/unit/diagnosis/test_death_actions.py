"""What to do next follows from how a rank ended, and from nothing else."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_ends import RankLine
from comminsight.analysis.log_faults import Fault, FaultKind
from comminsight.diagnosis.death_actions import Death, DeathWay, death_actions, death_of, way_of
from comminsight.model.hang import Liveness, RankState
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Message


def told_by(name: str, *, line: int = 12, first_line: int = 0) -> RankLine:
    event = LogEvent(
        code=LogCode.PYTHON_EXCEPTION, file="r.log", line=line, first_line=first_line, text="x"
    )
    return RankLine(3, Fault(FaultKind.OWN, name), event)


def codes_of(*deaths: Death) -> list[str]:
    return [one.code.removeprefix("action.") for one in death_actions(deaths)]


@pytest.mark.parametrize(
    ("status", "way"),
    [
        ("exit code 1", DeathWay.EXITED), ("exit code 0", DeathWay.LEFT), ("", DeathWay.UNKNOWN),
        ("signal 9 (SIGKILL)", DeathWay.KILLED), ("signal 9", DeathWay.KILLED),
        ("SIGKILL", DeathWay.KILLED), ("exit code 137", DeathWay.KILLED),
        ("exit code -9", DeathWay.KILLED), ("signal 15 (SIGTERM)", DeathWay.ASKED),
        ("exit code 143", DeathWay.ASKED), ("exit code -2", DeathWay.ASKED),
        ("signal 11 (SIGSEGV)", DeathWay.CRASH), ("exit code 135", DeathWay.CRASH),
        ("signal 6 (SIGABRT)", DeathWay.EXITED), ("exit code 134", DeathWay.EXITED),
        ("exit code 255", DeathWay.EXITED), ("SIGNONSENSE", DeathWay.UNKNOWN),
    ],
)  # fmt: skip
def test_the_way_of_a_status(status: str, way: DeathWay) -> None:
    assert way_of(status) is way


@pytest.mark.parametrize(
    ("death", "codes"),
    [
        (Death(3, "exit code 1", "n0", told_by("exception")), ["read_traceback"]),
        (Death(3, "", "n0", told_by("exception")), ["read_traceback"]),
        (Death(3, "exit code 1", "n0"), ["read_first_error"]),
        (
            Death(3, "signal 9 (SIGKILL)", "n0"),
            ["read_first_error", "find_killer", "read_kernel_oom"],
        ),
        (Death(3, "signal 9 (SIGKILL)", ""), ["read_first_error", "find_killer"]),
        (
            Death(3, "", "n0", told_by("vanished")),
            ["read_first_error", "find_killer", "read_kernel_oom"],
        ),
        (Death(3, "exit code 1", "n0", told_by("vanished")), ["read_first_error"]),
        (
            Death(3, "signal 9 (SIGKILL)", "n0", told_by("oom_kill")),
            ["read_first_error", "free_memory", "read_kernel_oom"],
        ),
        (Death(3, "exit code 1", "n0", told_by("no_memory")), ["read_first_error", "free_memory"]),
        (
            Death(3, "", "n0", told_by("gpu_hardware")),
            ["read_first_error", "check_gpu", "read_kernel_xid"],
        ),
        (
            Death(3, "", "n0", told_by("gpu_fault")),
            ["read_first_error", "check_kernel_code", "read_kernel_xid"],
        ),
        (Death(3, "signal 15 (SIGTERM)", "n0"), ["read_first_error", "find_sender"]),
        (Death(3, "signal 11 (SIGSEGV)", "n0"), ["read_first_error", "read_crash"]),
        (Death(3, "", "n0", told_by("left")), ["compare_batches"]),
        (Death(3, "", "n0"), ["read_first_error", "read_kernel_log"]),
    ],
)
def test_the_next_step_of_each_way(death: Death, codes: list[str]) -> None:
    assert codes_of(death) == codes


def test_the_traceback_is_named_by_its_first_line_and_each_way_told_once() -> None:
    raised = Death(3, "exit code 1", "n0", told_by("exception", line=40, first_line=31))
    killed = [Death(rank, "signal 9", f"n{rank % 2}") for rank in (5, 1)]
    told = list(death_actions([raised, *killed]))
    assert told[0] == Message("action.read_traceback", {"rank": 3, "source": "r.log", "line": 31})
    assert [one.params for one in told[1:]] == [
        {"ranks": [1, 5]}, {"ranks": [1, 5]}, {"hosts": ["n1"]}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("liveness", "status", "way"),
    [
        (Liveness.CLOSED, "", DeathWay.LEFT),
        (Liveness.CLOSED, "exit code 1", DeathWay.EXITED),
        (Liveness.DEAD, "", DeathWay.UNKNOWN),
    ],
)
def test_a_rank_that_closed_its_recorder_left_in_order(
    liveness: Liveness, status: str, way: DeathWay
) -> None:
    state = RankState(global_rank=2, liveness=liveness, exit_status=status, host="n1")
    assert (death_of(2, state).way, death_of(2, state).host) == (way, "n1")
    assert death_of(2, None).way is DeathWay.UNKNOWN
