"""Real 4-rank gloo jobs killed with SIGKILL at a random moment: nothing that the job knows of is
lost, and what was in flight is named.

Truth is the job's own file, written with O_APPEND after ``wait()`` returned.
"""

import random

import numpy as np
import pytest

from comminsight.lab.pool import Episode, run_pool
from comminsight.lab.truth import read_truth
from comminsight.model.hang import Liveness
from comminsight.model.ops import Op, OpState
from comminsight.model.verdict import Cause
from comminsight.run import open_run
from tests.integration.recording import pool_environment, skip_without_real_jobs

N_KILLS = 20
N_RANKS = 4


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory):
    skip_without_real_jobs()
    folder = tmp_path_factory.mktemp("kill")
    draw = random.Random(20)
    episodes = [
        Episode(
            name=f"kill-{i:02d}",
            arguments=("--job", "kill", "--steps", "100000", "--ops", "50"),
            ranks=N_RANKS,
            timeout_s=draw.uniform(0.7, 2.2),
        )
        for i in range(N_KILLS)
    ]
    results = run_pool(episodes, folder, pool_environment(folder))
    assert all(result.is_timed_out for result in results)
    assert all(code == -9 for result in results for code in result.exit_codes)
    return results


def logged_ops(truth):
    """Highest op number that each rank wrote down."""
    last = dict.fromkeys(range(N_RANKS), 0)
    for line in truth:
        if line["kind"] == "op":
            last[line["rank"]] = max(last[line["rank"]], line["n"])
    return last


@pytest.mark.real
@pytest.mark.slow
def test_every_op_that_the_job_logged_is_readable(killed_runs):
    n_ops = 0
    for result in killed_runs:
        run = open_run(result.run)
        logged = logged_ops(read_truth(result.truth))
        assert run.loaded.problems == ()
        assert [s.identity.global_rank for s in run.sessions] == list(range(N_RANKS))
        for session in run.sessions:
            records = session.records
            done = records[(records["op"] == Op.ALL_REDUCE) & (records["state"] == OpState.DONE)]
            seen = np.sort(done["match_seq"])
            expected = logged[session.identity.global_rank]
            assert len(seen) >= expected, (result.name, session.identity.global_rank)
            assert np.array_equal(seen, np.arange(1, len(seen) + 1))
            assert session.tally["seq_gaps"] == session.tally["capture_lost"] == 0
            n_ops += expected
    assert n_ops > N_KILLS * N_RANKS * 50


@pytest.mark.real
@pytest.mark.slow
def test_ops_in_flight_are_named_and_the_report_says_killed(killed_runs):
    n_in_flight = 0
    for result in killed_runs:
        run = open_run(result.run)
        report = run.report()
        assert report.facts.end == "killed"
        assert report.facts.killed_ranks == tuple(range(N_RANKS))
        assert report.verdicts[0].cause is Cause.JOB_KILLED
        assert not any(v.culprits for v in report.verdicts)
        for session in run.sessions:
            assert session.liveness is Liveness.DEAD
            done = session.records["match_seq"].max(initial=0)
            for slot in session.in_flight["record"]:
                assert slot["match_seq"] > done - 1
                assert slot["op"] == Op.ALL_REDUCE
                n_in_flight += 1
    assert n_in_flight >= N_KILLS
