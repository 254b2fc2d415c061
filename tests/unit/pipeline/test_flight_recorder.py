"""Verdicts on Flight Recorder dumps of simulated jobs: the rank at fault, or nobody."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from comminsight.diagnosis import codes
from comminsight.model.verdict import Cause, Confidence, Verdict
from comminsight.pipeline.flight_recorder import FlightReport, diagnose_flight_recorder
from tests.builders.flight_recorder import (
    T0,
    Call,
    FlightJob,
    Group,
    parallel_job,
    torch_pickle,
    write_dumps,
)

N_SEEDS = 3_000 if os.environ.get("COMMINSIGHT_FULL") == "1" else 120
LAYOUTS = [(2, 2, 2), (1, 4, 2), (4, 1, 2), (2, 1, 4), (1, 1, 8), (2, 2, 1), (1, 2, 4)]
S = 1_000_000_000
AR = "all_reduce"


def diagnosed(folder: Path, job: FlightJob, *, world: int = 0, **form: Any) -> FlightReport:
    return diagnose_flight_recorder(write_dumps(folder, job.play(), **form), world_size=world)


def world_job(n_ranks: int, n_calls: int = 6, **settings: Any) -> FlightJob:
    groups = {"0": Group("default_pg", tuple(range(n_ranks)))}
    return FlightJob(groups, {r: [Call("0", AR)] * n_calls for r in range(n_ranks)}, **settings)


@dataclass
class Fault:
    """A job with one fault; ``wanted`` is who may be named."""

    job: FlightJob
    wanted: set[int]
    form: dict[str, Any] = field(default_factory=dict)


def any_fault(rng: random.Random, kind: str) -> Fault:
    tp, pp, dp = rng.choice(LAYOUTS)
    backend = rng.choice(["nccl", "nccl", "gloo"])
    run_ahead = 1 if backend == "gloo" else rng.choice([1, 3, 6, 20])
    job = parallel_job(tp, pp, dp, backend=backend, run_ahead=run_ahead)
    rank = rng.randrange(tp * pp * dp)
    program = job.programs[rank]
    some = range(len(program) // 3, len(program) - 1)
    index = rng.choice(some)
    collective = rng.choice([i for i in some if not program[i].is_p2p])
    if kind == "host":
        job.host_stops[rank] = index
    elif kind == "device":
        job.device_stops[rank] = collective
    elif kind == "skip":
        del program[collective]
    else:
        job.dead.add((rank, collective))
        call = program[collective]
        changes = {
            "shape": {"shape": (3, *call.shape[1:])},
            "op": {"op": "broadcast"},
            "dtype": {"dtype": "Float"},
            "link": {},
        }
        program[collective] = call._replace(**changes[kind])  # type: ignore[arg-type]
    if rng.random() < 0.5:
        job.clocks_ns = {rank: rng.randrange(-5 * S, 5 * S) for rank in job.programs}
    form: dict[str, Any] = {
        "is_only_active": backend == "nccl" and rng.random() < 0.4,
        "ring": rng.choice([20, 40, 10_000]),
        "is_json": rng.random() < 0.3,
    }
    return Fault(job, set() if kind == "link" else {rank}, form)


CAUSES = {
    "host": {Cause.RANK_NOT_ENTERED},
    "device": {Cause.ALL_PRESENT_STUCK},
    "skip": {
        Cause.CONTROL_FLOW_SKIP, Cause.CROSS_GROUP_CYCLE, Cause.P2P_UNMATCHED,
        Cause.OP_TYPE_MISMATCH, Cause.RANK_NOT_ENTERED, Cause.ORDER_INVERSION,
    },
    "shape": {Cause.SHAPE_MISMATCH},
    "op": {Cause.OP_TYPE_MISMATCH},
    "dtype": {Cause.DTYPE_MISMATCH},
    "link": {Cause.ALL_PRESENT_STUCK},
}  # fmt: skip
NARROW = {
    Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP, Cause.ALL_PRESENT_STUCK, Cause.ORDER_INVERSION,
}  # fmt: skip


def is_right(verdict: Verdict, fault: Fault, kind: str) -> bool:
    """Names the rank and no other; in a circle, or where no side has more ranks, it with the
    others of these."""
    named = set(verdict.culprits)
    if verdict.cause not in CAUSES[kind]:
        return False
    return named == fault.wanted if verdict.cause in NARROW else named >= fault.wanted


@pytest.mark.parametrize("kind", CAUSES)
def test_one_fault_is_named_and_never_another_rank(kind: str, tmp_path: Path) -> None:
    rng = random.Random(kind)
    n_right = 0
    for seed in range(N_SEEDS // len(CAUSES)):
        fault = any_fault(rng, kind)
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = diagnosed(folder, fault.job, **fault.form).verdict
        is_moving = all(len(fault.job.over[r]) == n for r, n in fault.job.called.items())
        right = is_right(verdict, fault, kind)
        assert right or is_moving or verdict.cause is Cause.NO_VERDICT, (seed, fault, verdict)
        n_right += right
    assert n_right >= 0.6 * (N_SEEDS // len(CAUSES))


@pytest.mark.parametrize("kind", CAUSES)
def test_with_a_dump_missing_nobody_innocent_is_named(kind: str, tmp_path: Path) -> None:
    rng = random.Random(f"missing {kind}")
    for seed in range(N_SEEDS // len(CAUSES) // 2):
        fault = any_fault(rng, kind)
        absent = rng.choice(list(fault.job.programs))
        ranks = [rank for rank in fault.job.programs if rank != absent]
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = diagnosed(folder, fault.job, ranks=ranks, **fault.form).verdict
        if verdict.culprits:
            assert is_right(verdict, fault, kind), (seed, absent, fault, verdict)
            assert absent not in verdict.culprits


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_job_that_ended_well_gives_no_verdict(backend: str, tmp_path: Path) -> None:
    for layout in LAYOUTS:
        folder = tmp_path / str(layout)
        folder.mkdir()
        job = parallel_job(*layout, backend=backend, run_ahead=1)
        report = diagnosed(folder, job)
        assert report.verdict.cause is Cause.NO_VERDICT
        assert not report.verdict.culprits
        assert not report.event.in_flight


def test_what_was_in_flight_for_a_moment_when_it_was_dumped_is_no_hang(tmp_path: Path) -> None:
    job = world_job(4)
    job.host_stops[2] = 3
    paths = write_dumps(tmp_path, job.play())
    for path, age_s in zip(paths, (1, 2, 1, 3), strict=True):
        os.utime(path, ns=(T0 + age_s * S, T0 + age_s * S))
    young = diagnose_flight_recorder(paths).verdict
    assert (young.cause, young.culprits) == (Cause.NO_VERDICT, ())
    assert codes.MISSING_OVERDUE in [one.code for one in young.missing]
    os.utime(paths[0], ns=(T0 + 300 * S, T0 + 300 * S))
    assert diagnose_flight_recorder(paths).verdict.culprits == (2,)


def gloo_job(n_ranks: int, **settings: Any) -> FlightJob:
    return world_job(n_ranks, backend="gloo", run_ahead=1, **settings)


def test_a_rank_that_sleeps_in_a_gloo_job_is_named(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, gloo_job(4, host_stops={2: 3})).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.confidence is Confidence.MEDIUM
    unseen = [one.params for one in verdict.missing if one.code == codes.MISSING_UNSEEN_CALL]
    assert unseen == [{"ranks": [2]}]


@pytest.mark.parametrize("n_before", [0, 1])
def test_a_rank_in_a_receive_that_gloo_does_not_record_is_not_accused(
    n_before: int, tmp_path: Path
) -> None:
    """Rank 2 waits for a message of rank 3, which sleeps: of both there is the same: nothing."""
    job = gloo_job(4)
    for rank, op, peer in ((2, "recv", 3), (3, "send", 2)):
        message = Call("0", op, peer=peer)
        job.programs[rank] = [*[message, Call("0", AR)] * n_before, Call("0", AR), message]
        job.programs[rank] += [Call("0", AR)] * 5
    job.host_stops[3] = 2 * n_before + 1
    verdict = diagnosed(tmp_path, job).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    unseen = [one.params for one in verdict.missing if one.code == codes.MISSING_UNSEEN_CALL]
    assert unseen == [{"ranks": [2, 3]}]


def test_a_rank_without_a_dump_may_be_what_an_idle_rank_of_gloo_waits_for(tmp_path: Path) -> None:
    job = gloo_job(4, host_stops={2: 3, 3: 3})
    verdict = diagnosed(tmp_path, job, ranks=[0, 1, 2], world=4).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())


def old_form(job: FlightJob, rank: int, *, is_list: bool) -> Any:
    """The dump as torch 2.3 wrote it, or, as a list, 2.2."""
    document = job.dump(rank)
    own = [group for group in job.groups.values() if rank in group.members]
    entries = [
        {
            "record_id": entry["record_id"],
            "pg_id": entry["pg_id"],
            "seq_id": entry["collective_seq_id"],
            "profiling_name": entry["profiling_name"],
            "time_created_us": entry["time_created_ns"] // 1000,
            "input_sizes": entry["input_sizes"],
            "output_sizes": entry["output_sizes"],
            "state": entry["state"],
            "retired": entry["retired"],
        }
        for entry in document["entries"]
    ]
    if is_list:
        return entries
    config = {number: [*group.members] for number, group in enumerate(own)}
    return {"version": "1.4", "pg_config": config, "entries": entries}


def write_old_dumps(folder: Path, job: FlightJob, *, is_list: bool) -> None:
    for rank in job.programs:
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(torch_pickle(old_form(job, rank, is_list=is_list)))


@pytest.mark.parametrize(("tp", "pp", "dp"), [(2, 2, 2), (1, 1, 4), (4, 1, 1)])
def test_dumps_whose_groups_have_no_names(tp: int, pp: int, dp: int, tmp_path: Path) -> None:
    job = parallel_job(tp, pp, dp, run_ahead=3)
    job.host_stops[1] = len(job.programs[1]) * 2 // 3
    write_old_dumps(tmp_path, job.play(), is_list=False)
    verdict = diagnose_flight_recorder([tmp_path]).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (1,))


def test_a_bare_list_of_entries_tells_of_the_default_group(tmp_path: Path) -> None:
    job = world_job(4)
    job.host_stops[2] = 3
    write_old_dumps(tmp_path, job.play(), is_list=True)
    verdict = diagnose_flight_recorder([tmp_path]).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))


def test_what_coalesced_calls_do_is_told_by_the_entry_that_ends_them(tmp_path: Path) -> None:
    """The members of a group of P2P calls stay scheduled in some versions though it is over."""
    job = world_job(2, 2).play()
    paths = write_dumps(tmp_path, job)
    for rank, path in enumerate(paths):
        document = job.dump(rank)
        first = document["entries"][0]
        call = {"is_p2p": True, "state": "scheduled", "retired": False, "p2p_seq_id": 1}
        inner = [
            first | call | {"record_id": 2, "profiling_name": f"nccl:send {rank}->{1 - rank}"},
            first | call | {"record_id": 3, "profiling_name": f"nccl:recv {rank}<-{1 - rank}"},
        ]
        end = first | call | {"record_id": 4, "profiling_name": "nccl:coalesced"}
        document["entries"] += [*inner, end | {"state": "completed"}]
        path.write_text(json.dumps(document))
    assert not diagnose_flight_recorder(paths).event.in_flight


def test_the_report_says_what_it_rests_on(tmp_path: Path) -> None:
    job = world_job(2, 30, run_ahead=1)
    job.host_stops[1] = 25
    (tmp_path / "notes.txt").write_text("nothing")
    write_dumps(tmp_path, job.play(), ring=10)
    report = diagnose_flight_recorder([tmp_path])
    assert report.others == ("notes.txt",)
    assert sorted(report.sources) == [0, 1]
    assert report.n_entries == 20
    assert report.overwritten == {0: 16, 1: 15}
    assert report.frames == {0: ("all_reduce (train.py:25)",)}
    assert codes.MISSING_DUMP_TIME in [one.code for one in report.verdict.missing]
    assert codes.MISSING_BOX not in [one.code for one in report.verdict.missing]


def shared_group_job(*, version_bumps: bool) -> FlightJob:
    """Ranks 0 and 1 exchange messages on the group that all reduce on."""
    job = world_job(3, 8)
    for rank, op, peer in ((0, "send", 1), (1, "recv", 0)):
        job.programs[rank][3:3] = [Call("0", op, peer=peer)] * (6 if version_bumps else 1)
    return job


@pytest.mark.parametrize(("version", "culprits"), [("2.4", ()), ("2.9", (2,)), ("2.10", (2,))])
def test_early_versions_number_a_group_with_messages_unlike_on_each_rank(
    version: str, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    job = shared_group_job(version_bumps=False)
    job.host_stops[2] = 6
    verdict = diagnosed(tmp_path, job, version=version).verdict
    assert verdict.culprits == culprits
    said = codes.MISSING_NUMBERS in [one.code for one in verdict.missing]
    assert said == (version == "2.4")


def test_a_counter_without_an_entry_may_be_of_messages_that_no_dump_shows(tmp_path: Path) -> None:
    """Rank 2 is in the reduction; 0 and 1 left only their counters, which count messages."""
    job = shared_group_job(version_bumps=True)
    job.host_stops |= {0: 9, 1: 9}
    report = diagnosed(tmp_path, job, is_only_active=True)
    assert {op.global_rank for op in report.event.in_flight} == {2}
    assert report.verdict.culprits == ()
    assert report.verdict.cause is Cause.NO_VERDICT


@pytest.mark.parametrize("n_before", [2, 3, 4])
def test_a_dump_of_an_earlier_time_is_evidence_against_nobody(
    n_before: int, tmp_path: Path
) -> None:
    """Rank 2's is of when it had made ``n_before`` calls; the others had finished four by theirs,
    and waited for rank 1 in the fifth."""
    later = world_job(4)
    later.host_stops[1] = 4
    write_dumps(tmp_path, later.play(), ranks=[0, 1, 3])
    earlier = world_job(4)
    earlier.host_stops[2] = n_before
    write_dumps(tmp_path, earlier.play(), ranks=[2])
    verdict = diagnose_flight_recorder([tmp_path]).verdict
    older = [one.params for one in verdict.missing if one.code == codes.MISSING_LATER_DUMPS]
    if n_before < 4:
        assert older == [{"ranks": [2]}]
        assert verdict.culprits in {(), (1,)}
    else:  # nothing tells it from a rank that has not come
        assert older == []
        assert verdict.culprits == (1, 2)
