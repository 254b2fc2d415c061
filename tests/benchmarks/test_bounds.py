"""The goals of the benchmarks, held at three times the cost: a fall-back shows, a busy machine not.

CPU time (of all processes) and small sizes; ``make bench`` prints the
real numbers.
"""

import io
import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import (
    capture_overhead,
    diagnosis,
    engine,
    inspector_read,
    nccl_door,
    pair_waits,
    rebuild,
    recorder,
    segment_read,
)
from comminsight.analysis.waits import numpy_sweep
from comminsight.diagnosis.hang import judge_hang
from comminsight.errors import InputError
from comminsight.format.inspector_json import read_inspector
from comminsight.pipeline.executor import PoolExecutor
from comminsight.pipeline.kernels import pair_sweep
from tests.builders.inspector import inspector_text

SLACK = 3.0


def told(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}\n")


def test_recording_an_op_costs_a_microsecond(capsys: pytest.CaptureFixture[str]) -> None:
    costs_ns = recorder.c_costs_ns()
    if costs_ns is None:
        pytest.skip("the benchmark of the recorder is not built: make native")
    cost_ns = costs_ns["collective, begin + end"]
    told(capsys, f"begin + end: {cost_ns:.0f} ns")
    assert cost_ns <= SLACK * 1000


def test_the_callbacks_of_a_collective_cost_less_than_half_a_microsecond(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = [cost for cost in nccl_door.costs() if cost.holds is not None]
    if not table:
        pytest.skip("the benchmark of the NCCL door is not built: make native")
    for cost in table:
        told(
            capsys,
            f"NCCL v{cost.version}, {cost.n_channels} channels: {cost.ours_ns:.0f} ns,"
            f" {cost.ratio:.1f} times empty callbacks",
        )
        assert cost.clock_readings is not None
        assert cost.clock_readings <= 4.25  # one in 256 is timed, see no_alloc_nccl.cc
        assert cost.ours_ns <= SLACK * nccl_door.GOAL_NS
        assert cost.ratio <= SLACK * nccl_door.GOAL_RATIO
    assert {cost.version for cost in table} == {4, 5, 6, 7}


def test_ten_million_records_a_second_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_records = 200_000
    _, costs = segment_read.read_seconds(tmp_path, n_records)
    rate = n_records / costs["segment"] / 1e6
    told(capsys, f"segment read: {rate:.1f} M records/s")
    assert rate >= 10 / SLACK


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_inspector_lines_are_read_seven_times_as_fast_as_json_loads(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    n_records = 20_000
    plain = inspector_text(0, 8, range(n_records), per_dump=500)
    text = plain if kind == "plain" else inspector_read.mixed_text(n_records)
    rounds = []
    for _ in range(3):
        own_s = inspector_read.cpu_s(lambda: read_inspector(io.BytesIO(text)))
        rounds.append(inspector_read.cpu_s(lambda: inspector_read.loads(text)) / own_s)
    ratio = statistics.median(rounds)
    told(capsys, f"Inspector, {kind} lines: {ratio:.1f} times json.loads")
    assert ratio >= 7 / SLACK


def test_five_million_records_a_second_go_through_the_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    n_records = 300_000
    results = [engine.run(n_records) for _ in range(3)]
    assert {n_steps for _, n_steps, _ in results} == {n_records // len(engine.one_step())}
    rate = n_records / statistics.median(spent_s for spent_s, _, _ in results) / 1e6
    told(capsys, f"engine with {len(engine.templates())} templates: {rate:.1f} M records/s/core")
    assert rate >= 5 / SLACK


def test_the_memory_of_the_engine_does_not_grow_with_the_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short_mib, long_mib = engine.peak_mib(100_000), engine.peak_mib(1_000_000)
    told(capsys, f"engine: {short_mib:.1f} MiB, at ten times the length {long_mib:.1f} MiB")
    assert long_mib <= 1.3 * short_mib


def test_a_long_stream_needs_less_than_300_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    peak_mb = rebuild.long_stream_mb(2_000_000)  # 50 M in make bench
    told(capsys, f"2 M records from a generator: {peak_mb:.0f} MB resident at most")
    assert peak_mb < rebuild.GOAL_MB


def test_four_million_records_a_second_are_rebuilt_from_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_records = 300_000
    item = rebuild.write_parquet(tmp_path, n_records)
    rate = rebuild.rate(rebuild.rebuild_parquet, item, n_records)
    told(capsys, f"rebuild from Parquet: {rate:.1f} M records/s/core")
    assert rate >= 4 / SLACK


def test_two_workers_spend_hardly_more_than_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = rebuild.write_sessions(tmp_path, 20_000)
    pool = PoolExecutor(2)
    cpu, wall = rebuild.scale_out(tasks, {"pool": pool})["pool"]
    pool.close()
    told(capsys, f"two processes: {cpu:.2f} x the CPU of one, {wall:.2f} x the wall time")
    assert cpu <= SLACK * 1.15  # wall time is that of whoever else is on the machine


# CPU seconds for a step of 443 ops per rank
STEP_BOUNDS_S = {
    64: {pair_waits.MATCHING: 0.02, pair_waits.PAIR_WAITS: 0.1, pair_waits.BLAME: 0.3},
    512: {pair_waits.MATCHING: 0.2, pair_waits.PAIR_WAITS: 0.8, pair_waits.BLAME: 2.0},
}


@pytest.mark.parametrize("n_ranks", STEP_BOUNDS_S)
def test_a_step_of_many_ranks_is_measured_in_time(
    n_ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    n_ops, costs = pair_waits.step_costs(n_ranks, repeats=2)
    shown = ", ".join(f"{label} {cost_s:.3f} s" for label, cost_s in costs.items())
    told(capsys, f"{n_ranks} ranks, {n_ops} ops: {shown}")
    assert costs[pair_waits.ONE_RANK] <= costs[pair_waits.PAIR_WAITS]
    for label, bound_s in STEP_BOUNDS_S[n_ranks].items():
        assert costs[label] <= SLACK * bound_s, label


def test_pair_waits_of_4096_ranks_take_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    if pair_sweep() is numpy_sweep:
        pytest.skip("the native kernel is not built: make native")
    columns = pair_waits.large_step()
    cost_s = pair_waits.cpu_seconds(lambda: pair_sweep()(*columns), repeats=1)
    told(capsys, f"pair waits of {len(columns[0])} ops, 4,096 ranks: {cost_s:.2f} s")
    assert cost_s <= SLACK * 2


# what is judged, by the number of ranks whose dumps these are and the entries of each
DUMP_SETS = {diagnosis.DUMPS: (8, 8, 16, 5, 200, 517), diagnosis.LONG_DUMPS: (2, 2, 4, 60, 2000, 5)}


@pytest.mark.slow
@pytest.mark.parametrize("label", DUMP_SETS)
def test_a_verdict_from_dumps_takes_seconds(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tp, pp, dp, n_steps, n_entries, late = DUMP_SETS[label]
    diagnosis.write_dumps(tmp_path, diagnosis.stopped_job(tp, pp, dp, n_steps, late), n_entries)
    cost, bare_s, report = diagnosis.dumps_cost(tmp_path, repeats=2)
    told(capsys, f"{label}: {cost}, {cost.cpu_s / bare_s:.1f} times unpickling alone")
    assert report.verdicts[0].culprits == (late,)
    assert cost.cpu_s <= SLACK * diagnosis.GOALS_S[label]
    assert cost.cpu_s <= diagnosis.MAX_RATIOS[label] * bare_s


def test_a_verdict_from_a_thousand_logs_takes_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis.write_logs(tmp_path, 1024, 100)
    cost, _ = diagnosis.files_cost(tmp_path, repeats=1)
    told(capsys, f"{diagnosis.LOGS}: {cost}")
    assert cost.cpu_s <= SLACK * diagnosis.GOALS_S[diagnosis.LOGS]


def test_logs_of_a_thousand_ranks_with_many_events_are_read_and_judged_in_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis.write_call_logs(tmp_path, 1024, 92)
    read, judged, verdicts = diagnosis.split_cost(tmp_path)
    told(capsys, f"{diagnosis.CALL_LOGS}: read {read}, judged {judged}")
    assert verdicts[0].coverage.ranks_seen == 1024
    assert read.cpu_s + judged.cpu_s <= SLACK * diagnosis.CALL_LOGS_GOAL_S


@pytest.mark.parametrize("n_absent", [1, 4096])
def test_a_hang_of_8192_ranks_is_judged_in_two_seconds(
    n_absent: int, capsys: pytest.CaptureFixture[str]
) -> None:
    event, communicators = diagnosis.recorded(8192, n_absent)
    cost_s = diagnosis.seconds(lambda: judge_hang(event, communicators), repeats=1)
    told(capsys, f"8,192 ranks, {n_absent:,} absent: {cost_s:.2f} s")
    assert cost_s <= SLACK * diagnosis.EVENT_GOAL_S


def test_capture_adds_sixty_microseconds_to_an_op(capsys: pytest.CaptureFixture[str]) -> None:
    # In a world of one: between two ranks of a busy machine, waking each other up drowns it.
    try:
        cost_us = capture_overhead.alone_us()
    except InputError as error:
        pytest.skip(str(error))
    added_us = cost_us["recorded"] - cost_us["bare"]
    told(capsys, f"capture: {cost_us['bare']:.0f} us of CPU per op, recorded {added_us:.0f} more")
    assert 0 < added_us <= SLACK * 60
