"""What Slurm and mpirun alone say of an end: the verdict that holds, else the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.analysis.scheduler_ends import node_names
from comminsight.diagnosis import codes_ends, codes_logs
from comminsight.diagnosis.job import judge_job
from comminsight.model.verdict import Cause, Confidence, Verdict
from comminsight.pipeline.job_evidence import gather
from tests.builders.log_files import host_of, init, waiting, write_logs

STEP = "slurmstepd: error: *** STEP 47.0 ON n1 CANCELLED AT 2026-03-01T10:11:12"
LOST = f"{STEP} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
BY_USER = f"{STEP} ***"
WAITS = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
MPI_EXIT = (
    "mpirun detected that one or more processes exited with non-zero status, thus causing",
    "the job to be terminated. The first process to do so was:", "",
    "  Process name: [[45678,1],{}]", "  Exit code:    1",
)  # fmt: skip


def killed(host: str, tasks: str, how: str = "Terminated") -> str:
    return f"srun: error: {host}: tasks {tasks}: {how}"


def judged(folder: Path, *lines: str) -> Verdict:
    folder.mkdir(exist_ok=True)
    (folder / "job.out").write_text("\n".join(lines) + "\n")
    return judge_job(gather([folder]).job)[0]


def told(verdict: Verdict) -> set[str]:
    return {one.message.code for one in verdict.evidence} | {one.code for one in verdict.missing}


@pytest.mark.parametrize(
    ("lines", "node", "culprits"),
    [
        (["srun: error: Node failure on n7", WAITS, LOST, killed("n7", "24-31", "Killed")],
         "n7", tuple(range(24, 32))),
        (["slurmstepd: error: Node failure on gpu-07", killed("gpu-07", "0-1")], "gpu-07", (0, 1)),
        (["srun: error: Node failure on n[3,5]", killed("n3", "6,7"), killed("n5", "10-11")],
         "n3, n5", (6, 7, 10, 11)),
        (["srun: error: Node failure on n7", LOST, killed("n1", "0-7")], "n7", ()),
        (["srun: error: Node failure on n7", "srun: error: n7: task 3: Killed"], "n7", ()),
    ],
)  # fmt: skip
def test_a_node_that_slurm_lost(
    lines: list[str], node: str, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    verdict = judged(tmp_path, *lines)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, culprits)
    assert node in {link.value for link in verdict.chain}
    assert verdict.confidence is (Confidence.LOW if culprits else Confidence.MEDIUM)
    wanted = codes_ends.MISSING_TASK_IS_RANK if culprits else codes_ends.MISSING_RANKS_ON
    assert {codes_ends.NODE_FAILED, wanted} <= told(verdict)
    assert [one.code for one in verdict.next_actions] == [codes_ends.CHECK_NODE]


def test_ranks_whose_logs_name_the_host_are_known_and_their_peers_only_wait(
    tmp_path: Path,
) -> None:
    n_ranks, seen = 16, range(8)
    lines = [*init(range(n_ranks), world=n_ranks), *waiting(700, list(seen), seq=9)]
    node, lost = host_of(15), tuple(range(8, 16))
    write_logs(tmp_path / "job", lines, form="files")
    (tmp_path / "job/slurm.out").write_text(f"srun: error: Node failure on {node}\n{LOST}\n")
    found = judge_job(gather([tmp_path / "job"]).job)
    assert (found[0].cause, found[0].culprits) == (Cause.RANK_DEAD, lost)
    assert found[0].confidence is Confidence.MEDIUM
    assert all(set(one.culprits) <= set(lost) for one in found)


@pytest.mark.parametrize(
    ("lines", "rank", "node", "action"),
    [
        (["mpirun noticed that process rank 5 with PID 123 on node n2 exited on signal 9"
          " (Killed)."], 5, "n2", codes_ends.FIND_KILLER),
        (["mpirun noticed that process rank 0 with PID 123 on node n2 exited on signal 11"
          " (Segmentation fault)."], 0, "n2", codes_ends.READ_CRASH),
        ([one.format(3) for one in MPI_EXIT], 3, "unknown", None),
        (["MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "with errorcode 1."],
         3, "unknown", None),
        (["Abort(1) on node 6 (rank 6 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1)"
          " - process 6"], 6, "unknown", None),
        (["srun: error: n5: task 9: Exited with exit code 1", BY_USER, killed("n4", "0-7"),
          killed("n5", "8,10-15")], 9, "n5", None),
        (["srun: error: n5: task 9: Killed", "srun: error: n5: task 9: Out Of Memory",
          killed("n5", "8,10-15")], 9, "n5", codes_ends.FIND_KILLER),
    ],
)  # fmt: skip
def test_the_one_process_that_its_launcher_saw_end_first(
    lines: list[str], rank: int, node: str, action: str | None, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, *lines)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (rank,))
    assert verdict.confidence is Confidence.LOW
    assert verdict.chain[-2].value == node
    wanted = {codes_ends.MISSING_TASK_IS_RANK, codes_ends.MISSING_WHY_ENDED}
    assert wanted <= told(verdict)
    assert action is None or action in {one.code for one in verdict.next_actions}


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        # a user cancelled it: what is killed after that began nothing
        ([WAITS, BY_USER, killed("n1", "0-7"), killed("n2", "8-15", "Killed")],
         codes_ends.SCHEDULER_ENDED),
        ([BY_USER, "srun: error: n5: task 9: Exited with exit code 1", killed("n5", "8,10-15")],
         codes_ends.SCHEDULER_ENDED),
        ([BY_USER, "srun: error: n1: task 3: Killed", killed("n1", "0-2")],
         codes_ends.SCHEDULER_ENDED),
        # and a node that went down only then
        ([BY_USER, killed("n7", "24-31"), "srun: error: Node failure on n7"],
         codes_ends.SCHEDULER_ENDED),
        ([f"{STEP} DUE TO PREEMPTION ***", "srun: error: n1: task 0: Killed", killed("n1", "1-7")],
         codes_ends.SCHEDULER_ENDED),
        ([f"{STEP} DUE TO TIME LIMIT ***", killed("n1", "0-7")], codes_ends.SCHEDULER_ENDED),
        # a node failed, and nothing names it
        ([LOST, killed("n1", "0-7")], codes_ends.SOME_NODE_FAILED),
        (["47   train  gpu  proj  256  NODE_FAIL   1:0"], codes_ends.SOME_NODE_FAILED),
        # several ended by themselves, and nobody knows which of them first
        (["srun: error: n1: tasks 0-7: Exited with exit code 1"], ""),
        (["srun: error: n1: task 2: Exited with exit code 1",
          "srun: error: n1: task 5: Exited with exit code 1", killed("n1", "0-1")],
         codes_ends.LAUNCHER_SAW),
        (["srun: error: n1: tasks 0-7: Killed"], ""),
        # an abort is what a watchdog ends its process with, when it waited in vain
        (["srun: error: n1: task 2: Aborted (core dumped)", killed("n1", "0-1")],
         codes_ends.LAUNCHER_SAW),
        (["srun: error: n1: task 2: Exited with exit code 134", killed("n1", "0-1")],
         codes_ends.LAUNCHER_SAW),
        (["mpirun noticed that process rank 5 with PID 123 on node n2 exited on signal 6"
          " (Aborted)."], codes_ends.LAUNCHER_SAW),
        (["mpirun noticed that process rank 5 with PID 123 on node n2 exited on signal 15"
          " (Terminated)."], ""),
        # one task on a node: it may be a torchrun with many ranks
        (["srun: error: n5: task 9: Killed"], codes_ends.LAUNCHER_SAW),
        (["srun: error: n5: task 9: Exited with exit code 1", "srun: error: n1: task 0: "
          "Terminated"], codes_ends.LAUNCHER_SAW),
        (["[E302 10:00:00] failed (exitcode: 1) local_rank: 3 (pid: 77) of binary: python",
          *(one.format(1) for one in MPI_EXIT)], codes_ends.LAUNCHER_SAW),
        # a text of the program
        (["INFO: on 'srun: error' or 'Node failure' the job is submitted again"], ""),
    ],
)  # fmt: skip
def test_nobody_is_accused_by_what_only_looks_like_it(
    lines: list[str], code: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, *lines)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert not code or code in told(verdict)


def test_a_launcher_says_nothing_against_what_a_rank_says_itself(tmp_path: Path) -> None:
    """Rank 3 gave up waiting, and so ended first."""
    write_logs(tmp_path / "job", waiting(700, [0, 1, 3], seq=9), form="files")
    (tmp_path / "job/mpi.out").write_text("\n".join(one.format(3) for one in MPI_EXIT) + "\n")
    verdict = judge_job(gather([tmp_path / "job"]).job)[0]
    assert 3 not in verdict.culprits
    assert codes_logs.FIRST_ERROR not in told(verdict)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n7", ["n7"]), ("gpu-[07,9-11]", ["gpu-07", "gpu-9", "gpu-10", "gpu-11"]),
        ("a[1-2],head", ["a1", "a2", "head"]), ("n[008-010]", ["n008", "n009", "n010"]),
        ("n[1-999999]", [f"n{k}" for k in range(1, 65)]), ("n[x]", ["n[x]"]), ("", []),
    ],
)  # fmt: skip
def test_lists_of_nodes(text: str, nodes: list[str]) -> None:
    assert node_names(text) == nodes
