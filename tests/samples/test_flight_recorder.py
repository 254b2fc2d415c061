"""Real Flight Recorder dumps: two 16-rank NCCL jobs with injected faults, five small gloo jobs."""

from __future__ import annotations

import pickle  # noqa: TID251 - the baseline of the speed, on bytes of our own
import shutil
import time
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause, Confidence
from comminsight.pipeline.flight_recorder import FlightReport, diagnose_flight_recorder
from tests.builders.flight_recorder import parallel_job, write_dumps

SHARED = Path(__file__).resolve().parents[3] / "shared/samples"
NVRX = SHARED / "nvrx-flight-recorder"
OWN = SHARED / "own-flight-recorder"

needs_nvrx = pytest.mark.skipif(not NVRX.exists(), reason=f"no sample at {NVRX}")
needs_own = pytest.mark.skipif(not OWN.exists(), reason=f"no sample at {OWN}")


@needs_nvrx
@pytest.mark.parametrize(
    ("scenario", "cause", "injected", "group"),
    [
        ("gpu_error_1st", Cause.ALL_PRESENT_STUCK, (12, 14), "EXPERT_MODEL_PARALLEL_GROUP"),
        ("lock_gil_1st", Cause.RANK_NOT_ENTERED, (9, 14), "EXPERT_MODEL_PARALLEL_GROUP"),
    ],
)
def test_all_injected_ranks_and_no_other(
    scenario: str, cause: Cause, injected: tuple[int, ...], group: str
) -> None:
    report = diagnose_flight_recorder([NVRX / scenario])
    verdict = report.verdict
    assert (verdict.cause, verdict.culprits) == (cause, injected)
    assert set(verdict.victims) == set(range(16)) - set(injected)
    assert verdict.first_bad_op is not None
    assert group in verdict.first_bad_op.comm_label
    assert report.others == ("fault_injection.log", "nvrx_reference.txt")


@needs_nvrx
@pytest.mark.parametrize("scenario", ["gpu_error_1st", "lock_gil_1st"])
@pytest.mark.parametrize("absent", range(16))
def test_without_one_dump_nobody_else_is_named(scenario: str, absent: int, tmp_path: Path) -> None:
    injected = {"gpu_error_1st": {12, 14}, "lock_gil_1st": {9, 14}}[scenario]
    for path in (NVRX / scenario).glob("_dump_*"):
        if path.name != f"_dump_{absent}":
            shutil.copy(path, tmp_path)
    verdict = diagnose_flight_recorder([tmp_path]).verdict
    assert set(verdict.culprits) <= injected - {absent}
    if absent not in injected:
        assert set(verdict.culprits) == injected
        assert any(message.params.get("ranks") == [absent] for message in verdict.missing)


def own(scenario: str, pattern: str) -> FlightReport:
    return diagnose_flight_recorder(sorted((OWN / scenario).glob(pattern)))


@needs_own
@pytest.mark.parametrize(
    ("scenario", "cause", "culprits", "op", "confidence"),
    [
        ("healthy", Cause.NO_VERDICT, (), None, Confidence.NONE),
        ("missing", Cause.CONTROL_FLOW_SKIP, (3,), ("DATA_PARALLEL_GROUP", 5), Confidence.MEDIUM),
        ("shape", Cause.SHAPE_MISMATCH, (1,), ("default_pg", 3), Confidence.HIGH),
        ("stuck", Cause.RANK_NOT_ENTERED, (2,), ("default_pg", 3), Confidence.MEDIUM),
        ("wrongop", Cause.OP_TYPE_MISMATCH, (1,), ("default_pg", 3), Confidence.HIGH),
    ],
)
@pytest.mark.parametrize("pattern", ["rank_*", "raw_rank_*", "json_rank_*"])
def test_the_origin_in_each_form_of_the_dump(
    scenario: str, cause: Cause, culprits: tuple[int, ...], op: tuple[str, int] | None,
    confidence: Confidence, pattern: str,
) -> None:  # fmt: skip
    if not list((OWN / scenario).glob(pattern)):
        pytest.skip(f"the scenario has no {pattern}")
    report = own(scenario, pattern)
    verdict = report.verdict
    assert (verdict.cause, verdict.culprits, verdict.confidence) == (cause, culprits, confidence)
    bad = verdict.first_bad_op
    assert (bad and (bad.comm_label.split()[1].split("#")[0], bad.match_seq)) == op
    assert bool(report.frames) == (pattern == "rank_*" and scenario != "healthy")


@needs_own
def test_two_runs_in_one_folder_are_judged_by_the_last(tmp_path: Path) -> None:
    """The sample keeps dumps of a second run of the same job beside those of the first."""
    verdict = diagnose_flight_recorder([OWN / "missing"]).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.CONTROL_FLOW_SKIP, (3,))
    assert sum(one.code == "missing.file" for one in verdict.missing) == 8


def test_sixteen_ranks_of_two_thousand_entries_take_a_second(tmp_path: Path) -> None:
    """Or, where others crowd the machine, five times what bare unpickling in C takes."""
    job = parallel_job(2, 2, 4, n_steps=100)
    job.host_stops[5] = 2_250
    paths = write_dumps(tmp_path, job.play(), ring=2_000)
    taken_s, bare_s = [], []
    for _ in range(3):
        begin_s = time.process_time()
        report = diagnose_flight_recorder(paths)
        taken_s.append(time.process_time() - begin_s)
        begin_s = time.process_time()
        kept = [pickle.loads(path.read_bytes()) for path in paths]  # noqa: S301
        bare_s.append(time.process_time() - begin_s)
        assert len(kept) == 16
    assert report.n_entries == 32_000
    assert report.verdict.culprits == (5,)
    print(f"16 ranks of 2,000 entries: {min(taken_s):.2f} s, bare unpickling {min(bare_s):.2f} s")
    assert min(taken_s) <= max(1.0, 5 * min(bare_s))
