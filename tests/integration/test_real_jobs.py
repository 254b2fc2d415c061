"""Real jobs of every kind that has a template, over gloo: each writes what it does and when, and
the steps rebuilt from its record are these, on every rank, with these numbers.

One pool runs them all, one after the other, with up to eight ranks. Nothing is calibrated.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from comminsight.diagnosis.finished_mismatch import judge_finished
from comminsight.lab.pool import Episode, run_pool
from comminsight.lab.truth import read_truth
from comminsight.model.ops import CommRole, Op
from comminsight.model.records import is_ended_op
from comminsight.model.verdict import Cause, Coverage
from comminsight.run import open_run, run_of_sessions
from tests.integration.launching import verb
from tests.integration.recording import pool_environment, skip_without_real_jobs

MAX_POOL_S = 180  # on two cores that do nothing else; printed, not asserted

pytestmark = [pytest.mark.real, pytest.mark.slow]


@dataclass(frozen=True)
class Job:
    name: str
    ranks: int
    arguments: str
    template: str
    apart: dict = field(default_factory=dict)  # how often the job does what is no step, per rank

    @property
    def episode(self):
        return Episode(self.name, tuple(self.arguments.split()), ranks=self.ranks)


EVALS = "--steps 12 --eval-every 4 --checkpoint-every 6 --pause-ms 150"
EVALS_APART = {"evaluation": 3, "checkpoint": 2}
NO_STEPS = ("evaluation", "checkpoint", "idle")
JOBS = [
    Job("ddp", 4, f"--job ddp {EVALS}", "ddp", EVALS_APART),
    Job("ddp-accum", 4, f"--job ddp_accum {EVALS}", "ddp", EVALS_APART),
    Job("ddp-members", 4, "--job ddp_members --steps 14 --short-from 2 --short-by 5", "ddp"),
    Job("ddp-join", 4, "--job ddp_join --steps 12 --short-from 2 --short-by 4", "ddp"),
    Job("ddp-killed", 4, "--job ddp --steps 12 --exit-rank 1 --exit-at 8 --exit-how sigkill",
        "ddp"),
    Job("fsdp2", 4, f"--job fsdp2 --layers 4 {EVALS}", "fsdp2", EVALS_APART),
    Job("fsdp2-accum", 4, f"--job fsdp2_accum --microbatches 3 {EVALS}", "fsdp2", EVALS_APART),
    Job("hsdp", 4, f"--job hsdp --layers 4 {EVALS}", "fsdp2", EVALS_APART),
    Job("1f1b", 8, f"--job tp_pp_dp {EVALS}", "tp-pp-dp", EVALS_APART),
    Job("1f1b-numbers", 8, f"--job tp_pp_dp --batch-metric 1 {EVALS}", "tp-pp-dp", EVALS_APART),
    Job("1f1b-torch", 8, "--job tp_pp_dp_torch --steps 10", "tp-pp-dp"),
    Job("interleaved", 8, "--job tp_pp_dp_torch --steps 10 --chunks 2", "tp-pp-dp"),
    Job("moe", 8, f"--job moe {EVALS}", "tp-pp-dp", EVALS_APART),
    Job("serving", 4, "--job serving --steps 5 --pause-ms 150", "serving-tp", {"idle": 6}),
    Job("serving-poll", 4, "--job serving_poll --steps 5 --pause-ms 150", "serving-tp",
        {"idle": 6}),
    Job("serving-ep", 4, "--job serving_ep --steps 5 --pause-ms 60", "serving-ep"),
]  # fmt: skip
APART = {"ddp-members", "hsdp", "serving", "serving-poll"}  # two sets of ranks without an anchor
KILLED = "ddp-killed"
WHOLE = Coverage(ranks_expected=8, ranks_seen=8)
JOINED = "ddp-join"
each = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)


class Recorded:
    """One job: what it wrote itself, and what its record says."""

    def __init__(self, result):
        self.exit_codes = result.exit_codes
        self.run = open_run(result.run)
        self.truth = read_truth(result.truth)
        self.sessions = {s.identity.global_rank: s for s in self.run.sessions}

    def written(self, kind, rank):
        return [line for line in self.truth if (line["kind"], line["rank"]) == (kind, rank)]

    def found(self, rank):
        return self.run.session_steps[self.sessions[rank].identity.session_id]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    skip_without_real_jobs()
    folder = tmp_path_factory.mktemp("jobs")
    begin_s = time.monotonic()
    results = run_pool([job.episode for job in JOBS], folder, pool_environment(folder))
    print(
        f"{len(JOBS)} jobs in {time.monotonic() - begin_s:.0f} s (two idle cores: < {MAX_POOL_S})"
    )
    return {result.name: Recorded(result) for result in results}


@each
def test_the_steps_are_those_that_the_job_wrote(job, recorded):
    one = recorded[job.name]
    assert sorted(one.sessions) == list(range(job.ranks))
    longest = max(len(one.written("step", rank)) for rank in range(job.ranks))
    for rank in range(job.ranks):
        steps, written = one.found(rank), one.written("step", rank)
        # who has no more inputs takes part in the others' steps without knowing of steps
        n_expected = longest if job.name == JOINED else len(written)
        assert [step.step for step in steps] == list(range(n_expected)), rank
        assert [line["step"] for line in written] == list(range(len(written)))
        for step, line in zip(steps, written, strict=False):
            # ends are told by callbacks, which may run after the job has gone on
            assert line["begin_ns"] <= step.start_ns <= step.last.start_ns <= line["end_ns"], line
        assert {step.template for step in steps} == {job.template}
    print(job.name, longest, "steps")


@each
def test_no_step_where_there_was_none(job, recorded):
    one = recorded[job.name]
    for rank in range(job.ranks):
        for kind, n_times in job.apart.items():
            assert len(one.written(kind, rank)) == n_times
        apart = [line for kind in NO_STEPS for line in one.written(kind, rank)]
        for line in apart:
            inside = [
                step.step
                for step in one.found(rank)
                if step.start_ns <= line["end_ns"] and line["begin_ns"] <= step.last.start_ns
            ]
            assert inside == [], line


@each
def test_every_op_of_a_step_is_in_its_step(job, recorded):
    """All ops that a rank played between the first and the last op of a step belong to it."""
    one = recorded[job.name]
    for rank, session in one.sessions.items():
        ops = session.records[is_ended_op(session.records)]
        starts = ops["start_ns"]
        for step in one.found(rank):
            inside = (step.start_ns <= starts) & (starts <= step.last.start_ns)
            assert np.count_nonzero(inside) == step.n_ops, (rank, step.step)
            assert step.coverage_complete, (rank, step.step)


@each
def test_over_all_ranks(job, recorded):
    one = recorded[job.name]
    by_step = {step.step: set(step.members) for step in one.run.aligned_steps}
    if job.name == JOINED:
        longest = max(len(one.written("step", rank)) for rank in range(job.ranks))
        assert by_step == {step: set(range(job.ranks)) for step in range(longest)}
        return
    wrote = {}
    for line in one.truth:
        if line["kind"] == "step":
            wrote.setdefault(line["step"], set()).add(line["rank"])
    assert by_step == wrote


@each
def test_there_is_nothing_to_calibrate(job, recorded):
    """The numbers by which anchors of all ranks order the steps are those that the job wrote."""
    counts = recorded[job.name].run.calibration.preview().correction.counts
    assert counts.n_local_steps == sum(counts.by_confidence.values()) > 0
    for n in (counts.n_renumbered, counts.n_fused, counts.n_split, counts.n_missing, counts.n_raw):
        assert n == 0
    assert counts.n_parts == (2 if job.name in APART else 1)


@each
def test_no_call_went_through_unlike(job, recorded):
    """Nobody is told to have called another thing; a sum of another size
    would be."""
    run = recorded[job.name].run
    assert judge_finished(run.trace, run.coverage(), run.aligned_steps) == ()
    if job.name != KILLED:
        assert run.coverage().records_lost == 0
    own, others = run.trace.ranks[-1], run.trace.ranks[:-1]
    sums = np.flatnonzero(own.ops["op"] == Op.ALL_REDUCE).tolist()
    found = [
        judge_finished(replace(run.trace, ranks=(*others, doubled(own, row))), WHOLE)
        for row in sums[:: 1 + len(sums) // 24]
    ]
    told = [one for verdicts in found for one in verdicts]
    print(job.name, f"{len(told)} of {len(found)} planted sizes named")
    assert bool(told) == bool(sums), job.name  # one job has none
    assert {one.cause for one in told} <= {Cause.SHAPE_MISMATCH}
    assert all(own.global_rank in one.culprits for one in told)


def doubled(rank, row):
    """The rank with twice the elements in one op."""
    ops = rank.ops.copy()
    for name in ("size_bytes", "count"):
        ops[name][row] *= 2
    return replace(rank, ops=ops)


@each
def test_how_the_job_ended(job, recorded):
    one = recorded[job.name]
    if job.name != KILLED:
        assert set(one.exit_codes) == {0}
        return
    assert one.exit_codes[1] == -9
    begun = {line["step"] for line in one.truth if line["kind"] == "step_begin"}
    ended = {line["step"] for line in one.truth if line["kind"] == "step"}
    assert begun - ended == {8}


def test_serving_has_prefills_and_decodes(recorded):
    modes = [line["mode"] for line in recorded["serving"].truth if line["kind"] == "step"]
    assert {mode: modes.count(mode) > 5 for mode in set(modes)} == {
        "prefill": True, "decode": True, "mixed": True,
    }  # fmt: skip
    lengths = {len(recorded["serving"].found(rank)) for rank in range(4)}
    assert len(lengths) == 2, "the two engines serve different requests"


@pytest.mark.parametrize("name", ["serving", "serving-poll"])
def test_prefills_and_decodes_are_those_that_the_job_wrote(name, recorded):
    one, found = recorded[name], Counter()
    for rank in one.sessions:
        modes = {line["step"]: line["mode"] for line in one.written("step", rank)}
        for step in one.found(rank):
            forward, *over = step.phases
            assert forward.kind.value == "forward"
            found[modes[step.step], "".join(phase.kind.value for phase in over)] += 1
    print(name, dict(found))
    assert all(told in {"", mode} for mode, told in found)
    assert found["prefill", "prefill"] > 0
    assert found["decode", "decode"] > found["decode", ""]


@pytest.mark.parametrize("name", ["serving-poll", "serving-ep"])
def test_idle_time_is_full_of_ops_that_are_no_steps(name, recorded):
    one = recorded[name]
    for rank, session in one.sessions.items():
        idle = one.written("idle", rank)
        starts = session.records["start_ns"][is_ended_op(session.records)]
        n_ops = sum(
            np.count_nonzero((line["begin_ns"] <= starts) & (starts <= line["end_ns"]))
            for line in idle
        )
        assert n_ops > 5 * len(idle)


@each
def test_the_same_as_tables(job, recorded):
    run = recorded[job.name].run
    steps = run.steps().to_pylist()
    by_rank = {
        rank: [row for row in steps if row["global_rank"] == rank] for rank in range(job.ranks)
    }
    for rank, session in recorded[job.name].sessions.items():
        own = recorded[job.name].found(rank)
        assert [row["local_step"] for row in by_rank[rank]] == [step.step for step in own]
        ops = run.ops(rank=rank)
        assert len(ops) == np.count_nonzero(is_ended_op(session.records))
        numbers = ops["step"].to_pylist()
        for row in by_rank[rank]:
            assert numbers.count(row["step"]) == row["n_ops"]
    shown = run.step_ops(global_rank=1, step=7).ops
    assert [op.op_seq for op in shown] == run.ops(rank=1, step=7)["op_seq"].to_pylist()


# kinds of phases that the ops of a job tell; of the others nothing is said
TOLD = {
    "ddp": {"grad_sync"},
    "ddp-accum": {"grad_sync"},
    "fsdp2": {"forward", "backward", "grad_sync"},
    "fsdp2-accum": {"grad_sync"},
    "hsdp": {"forward", "backward", "grad_sync"},
    "1f1b": {"forward", "backward", "grad_sync", "optimizer"},
    "1f1b-numbers": {"grad_sync", "optimizer"},
    "1f1b-torch": {"forward", "backward", "grad_sync", "optimizer"},
    "interleaved": {"grad_sync", "optimizer"},
    "moe": {"grad_sync"},
}
COMPARED = ("forward", "backward", "grad_sync", "optimizer")


@pytest.mark.parametrize("name", TOLD)
def test_phases_are_those_that_the_job_wrote(name, recorded):
    one = recorded[name]
    found, right, wrong = set(), 0, []
    for rank in one.sessions:
        written = one.written("phase", rank)
        for step in one.found(rank):
            own = [line for line in written if line["step"] == step.step]
            for phase in step.phases:
                if phase.kind.value not in COMPARED:
                    continue
                lines = [line for line in own if shared_ns(phase, line) > 0]
                if not lines:
                    continue  # the norm behind the gradients
                found.add(phase.kind.value)
                most = max(lines, key=lambda line, phase=phase: shared_ns(phase, line))
                if is_phase(phase, most):
                    right += 1
                else:
                    wrong.append((rank, step.step, phase, most))
    print(name, right, "phases as written,", len(wrong), "not")
    assert found >= TOLD[name]
    assert len(wrong) <= right // 20, wrong[:3]  # short ones at their edges


def shared_ns(phase, line):
    return min(phase.end_ns, line["end_ns"]) - max(phase.start_ns, line["begin_ns"])


def is_phase(phase, line):
    """Gradients may be in flight while the backward pass goes on."""
    kinds = {phase.kind.value} | ({"backward"} if phase.kind.value == "grad_sync" else set())
    return line["phase"] in kinds and phase.microbatch in {-1, line["microbatch"]}


def test_the_verb_lists_steps_phases_and_changes(recorded):
    one = recorded["ddp-members"]
    root = one.run.paths.root
    told = json.loads(verb("steps", root, "--json").stdout)
    assert told["changes"] == [
        {"code": "change.ranks_left", "params": {"step": 9, "ranks": [2, 3]}}
    ]
    assert [row["n_ranks"] for row in told["steps"]] == [4] * 9 + [2] * 5
    assert all(0 < row["phase_ns"]["grad_sync"] <= row["span_ns"] for row in told["steps"])
    text = verb("steps", root).stdout.decode()
    assert "step 9: ranks 2-3 left" in text
    assert "grad sync" in text


def without_names(run):
    """The run as it would be known by ops and members alone."""
    sessions = []
    for session in run.sessions:
        comms = session.comms.copy()
        comms["name"], comms["desc"] = b"", b""
        sessions.append(replace(session, comms=comms))
    return run_of_sessions(sessions)


@each
def test_without_names_roles_and_steps_are_the_same_or_unknown(job, recorded):
    named = recorded[job.name].run
    bare = without_names(named)
    by_key = {(c.comm_hash, c.ordinal): [] for c in named.roles.communicators}
    for comm in named.roles.communicators:
        by_key[comm.comm_hash, comm.ordinal].append(comm.role)
    told = [(by_key[c.comm_hash, c.ordinal], c.role) for c in bare.roles.communicators]
    wrong = [(roles, role) for roles, role in told if role not in {*roles, CommRole.UNKNOWN}]
    assert wrong == []
    print(job.name, bare.roles.coordinates.layout.order, Counter(role for _, role in told))
    for name, steps in named.session_steps.items():
        is_same = bounds(bare.session_steps[name]) == bounds(steps)
        # replicas that do not speak to each other and only reduce: no role, hence no template
        assert is_same or (job.name == "ddp-members" and not bare.session_steps[name])


def bounds(steps):
    return [(step.first.seq, step.last.seq) for step in steps]
