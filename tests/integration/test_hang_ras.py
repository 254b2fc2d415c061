"""A real hang of processes that say they use NCCL, beside a server that speaks NCCL's RAS: the
answer lies in the run and in the verdict, and one that hangs holds nobody up."""

import os
import subprocess
import sys
import time

import pytest

from comminsight.diagnosis import codes
from comminsight.model.ops import Backend, DType, Op, OpState, RecordKind
from comminsight.model.verdict import Cause
from comminsight.run import open_run
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.builders.ras_server import RasServer, serving
from tests.integration.launching import recorded

COMM_HASH = 0xAB
N_RANKS = 3
ABSENT = 2

pytestmark = [pytest.mark.real, pytest.mark.slow]


def rank_of_the_job(rank):
    """One process: all ranks do one all-reduce, and all but one begin the next."""
    from comminsight_inject.recorder import Recorder

    recorder = Recorder(os.environ["COMMINSIGHT_LIBRARY"])
    comm = recorder.register(COMM_HASH, "dp", "dp", rank, N_RANKS, "0-2", Backend.NCCL)
    for number in range(2 if rank != ABSENT else 1):
        handle = recorder.begin(
            comm, RecordKind.COLLECTIVE, Op.ALL_REDUCE, DType.FLOAT32, 0, 1024, 4096, -1, 0, 0
        )
        if number == 0:
            recorder.end(handle, OpState.DONE, 0)
    time.sleep(60)


def job():
    """The launcher of the ranks; ends when it is told to."""
    command = [sys.executable, "-m", "tests.integration.test_hang_ras"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(N_RANKS)},
        )
        for rank in range(N_RANKS)
    ]
    for process in ranks:
        process.wait()


def test_the_answer_of_ras_is_in_the_verdict_of_a_real_hang(tmp_path):
    launched = [ras_rank(rank, launched=1 if rank == ABSENT else 2) for rank in range(N_RANKS)]
    with serving(RasServer(json=ras_json(ras_comm(COMM_HASH, launched)))) as server:
        code, _, err = hung(tmp_path / "run", server)
    assert code != 0
    (verdict,) = open_run(tmp_path / "run").report().verdicts
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (ABSENT,)), err
    said = {e.message.code: e.message.params for e in verdict.evidence if e.kind == "ras"}
    launches = said[codes.RAS_LAUNCHED]
    assert (launches["ranks"], launches["launched"], launches["others"]) == ([ABSENT], 1, 2)
    assert codes.RAS_OTHER_PROCESS in said  # the server made its pids up
    assert server.heard.count("VERBOSE STATUS") == 1


def test_a_ras_that_hangs_holds_up_neither_verdict_nor_end(tmp_path):
    begin_s = time.monotonic()
    with serving(RasServer(hang_after=1)) as server:
        _, _, err = hung(tmp_path / "run", server)
    assert time.monotonic() - begin_s < 25.0  # less than the deadline of the question
    (verdict,) = open_run(tmp_path / "run").report().verdicts
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (ABSENT,)), err
    assert server.heard[0] == "CLIENT PROTOCOL 2"
    assert not list((tmp_path / "run" / "hangs").glob("ras-*"))


def hung(out, server):
    command = (sys.executable, "-m", "tests.integration.test_hang_ras")
    address = f"{server.address[0]}:{server.address[1]}"
    return recorded(
        out, *command, options=("--overdue", "1", "--stop-on-hang"),
        env={"NCCL_RAS_ADDR": address}, start_new_session=True,
    )  # fmt: skip


if __name__ == "__main__":
    rank_of_the_job(int(sys.argv[1])) if len(sys.argv) > 1 else job()
