from __future__ import annotations

import pytest

from comminsight.analysis.log_ends import ends_of, task_numbers
from comminsight.analysis.log_faults import FaultKind
from comminsight.analysis.log_ranks import ranks_of
from tests.unit.analysis.log_texts import job_log

INIT = "n1:7{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 2 cudaDev {rank} busId {bus} commId 0x9 - Init START"  # noqa: E501
DESTROY = "n1:7{rank}:9 [0] NCCL INFO comm 0x5 rank {rank} nranks {n} cudaDev 0 busId 1 - Destroy COMPLETE"  # noqa: E501
XID = "2026-04-14T16:00:00+00:00 n1 kernel: [1.250000] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen"  # noqa: E501


@pytest.mark.parametrize(
    ("tasks", "numbers"), [("3", [3]), ("0-2,5", [0, 1, 2, 5]), ("x", []), ("", [])]
)
def test_a_list_of_tasks(tasks: str, numbers: list[int]) -> None:
    assert list(task_numbers(tasks)) == numbers


def test_an_error_of_a_gpu_is_of_the_rank_that_uses_it() -> None:
    logs = [job_log(*(INIT.format(rank=k, bus=f"{k + 0x3A:x}000") for k in range(2)), XID)]
    ends = ends_of(logs, ranks_of(logs))
    assert list(ends.of(FaultKind.OWN)) == [1]


def test_only_the_end_of_the_communicator_of_all_ranks_is_an_end_in_order() -> None:
    world = [INIT.format(rank=k, bus="1000") for k in range(2)]
    logs = [job_log(*world, DESTROY.format(rank=0, n=1), DESTROY.format(rank=1, n=2))]
    ends = ends_of(logs, ranks_of(logs))
    assert list(ends.of(FaultKind.LEFT)) == [1]


def test_how_launchers_saw_ranks_end() -> None:
    world = [INIT.format(rank=k, bus="1000") for k in range(2)]
    asked = "Sending process 70 closing signal SIGTERM"
    forced = "Unable to shutdown process 70 via SIGTERM, forcefully exiting via SIGKILL"
    failed = "failed (exitcode: 1) local_rank: 1 (pid: 71) of binary: python"
    logs = [job_log(*world, failed, asked, forced)]
    ends = ends_of(logs, ranks_of(logs))
    assert (list(ends.closed), ends.statuses, list(ends.unyielding)) == (
        [0], {1: "exit code 1"}, [0],
    )  # fmt: skip
