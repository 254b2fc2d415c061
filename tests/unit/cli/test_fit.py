"""``comminsight fit`` through the front door: tables of nccl-tests, runs, records of bench."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from comminsight.analysis.bench_statistics import bench_row
from comminsight.errors import ExitCode
from comminsight.model.bench import BenchRecord, Decision, EvidenceLevel, Metrics
from comminsight.model.ops import Op
from comminsight.sim import Clocks, ddp_layout, simulate
from tests.builders.json_schema import violations
from tests.builders.run import write_run
from tests.unit.cli.calling import call

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schema/fit.json").read_text())

HEADER = """\
# all_reduce_perf
#  Rank  0 Group  0 Pid  11 on     n0 device  0 [0x01] GPU
#  Rank  1 Group  0 Pid  12 on     n0 device  1 [0x02] GPU
#       size         count      type   redop    root     time   algbw   busbw #wrong
"""


def table(path: Path, startup_us: float, rate_gbs: float, sizes: list[int]) -> Path:
    rows = []
    for n, size in enumerate(sizes):
        time_us = (startup_us + size / rate_gbs / 1000) * (1.02 if n % 2 else 0.98)
        gbs = size / time_us / 1000
        numbers = f"{time_us:.2f} {gbs:.4f} {gbs:.4f}"
        rows.append(f" {size} {size // 4} float sum -1 {numbers} 0\n")
    path.write_text(HEADER + "".join(rows))
    return path


SIZES = [1 << k for k in range(12, 29, 2)]


def test_startup_and_rate_of_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "fit", table(tmp_path / "a.txt", 20.0, 40.0, SIZES), "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    (found,) = told["fits"]
    assert (found["tier"], found["n_ranks"], found["no_fit"]) == ("node", 2, None)
    assert found["startup_ns"] == pytest.approx(20_000, rel=0.05)
    assert found["rate_gbs"] == pytest.approx(40, rel=0.05)
    assert found["startup_low_ns"] < 20_000 < found["startup_high_ns"]


@pytest.mark.parametrize(("startup_us", "rate_gbs", "said"), [
    (20.0, 40.0, None), (60.0, 40.0, "the startup is longer"), (20.0, 15.0, "the rate is lower"),
])  # fmt: skip
def test_two_days(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], startup_us: float, rate_gbs: float,
    said: str | None,
) -> None:  # fmt: skip
    days = [table(tmp_path / "a.txt", 20.0, 40.0, SIZES),
            table(tmp_path / "b.txt", startup_us, rate_gbs, SIZES)]  # fmt: skip
    code, out, _ = call(capfd, "fit", *days)
    assert code == ExitCode.OK
    worse = [line for line in out.splitlines() if "longer" in line or "lower" in line]
    assert len(worse) == (said is not None)
    assert said is None or said in " ".join(out.split())


def test_too_few_sizes_have_no_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capfd, "fit", table(tmp_path / "a.txt", 20.0, 40.0, SIZES[:2]))
    assert "no model" in " ".join(out.split())


def bench_record(
    path: Path, decision: Decision, *, startup_us: float = 50.0, rate_gbs: float = 4.0,
    algorithm: str = "Ring",
) -> Path:  # fmt: skip
    """What the benchmark writes of three collectives, five repeats a payload."""
    rng = random.Random(str(path))
    rows = []
    for name, parts in (("all_reduce", 1), ("all_gather", 4), ("reduce_scatter+all_gather", 1)):
        for payload in SIZES:
            us = startup_us + payload * parts / rate_gbs / 1000
            ranks = [[us * rng.uniform(0.98, 1.02) / 1000 for _ in range(5)] for _ in range(4)]
            rows.append(bench_row(name, payload, ranks))
    record = BenchRecord(
        workload_id="w", label="l", backend="gloo", dtype="float32", world_size=4, warmup=1,
        repeats=5, algorithm_requested=algorithm, decision=decision,
        evidence_level=EvidenceLevel.MEASURED, metrics=Metrics(rows=tuple(rows)),
    )  # fmt: skip
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    return path


@pytest.mark.parametrize(("decision", "algorithm"), [
    (Decision.USE_ALGORITHM, "Ring"), (Decision.USE_TIMES, "Ring?"),
    (Decision.NOT_HONOURED, "not Ring"),
])  # fmt: skip
def test_a_record_of_the_benchmark(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], decision: Decision, algorithm: str
) -> None:
    """The size of an all-gather is that of the whole result."""
    code, out, _ = call(capfd, "fit", bench_record(tmp_path / "a.json", decision), "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    assert violations(told, SCHEMA) == []
    n_rows = 5 * len(SIZES)
    kinds = [(one["op"], one["n_ranks"], one["algorithm"], one["n_rows"]) for one in told["fits"]]
    assert kinds == [(op, 4, algorithm, n_rows) for op in (Op.ALL_REDUCE, Op.ALL_GATHER)]
    for one in told["fits"]:
        assert one["startup_ns"] == pytest.approx(50_000, rel=0.05)
        assert one["rate_gbs"] == pytest.approx(4, rel=0.05)


def test_records_in_a_folder_and_what_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Algorithms cross; a launch that failed gives nothing, and other files are passed over."""
    bench_record(tmp_path / "a.json", Decision.USE_ALGORITHM, startup_us=300, rate_gbs=8.0)
    bench_record(tmp_path / "b.json", Decision.USE_ALGORITHM, algorithm="Tree")
    bench_record(tmp_path / "c.json", Decision.DISCARD, algorithm="Linear")
    (tmp_path / "a.log").write_text("nothing\n")
    code, out, _ = call(capfd, "fit", tmp_path, "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    assert {one["algorithm"] for one in told["fits"]} == {"Ring", "Tree"}
    crossed = {(one["op"], one["below"], one["above"]) for one in told["crossovers"]}
    assert crossed == {(Op.ALL_REDUCE, "Tree", "Ring"), (Op.ALL_GATHER, "Tree", "Ring")}
    for one in told["crossovers"]:  # 250 us over 1/4 - 1/8 ns a byte
        assert one["size_bytes"] == pytest.approx(2_000_000, rel=0.1)


def test_a_record_that_was_cut(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = bench_record(tmp_path / "a.json", Decision.USE_TIMES)
    path.write_bytes(path.read_bytes()[:-30])
    code, _, err = call(capfd, "fit", path)
    assert code == ExitCode.BAD_INPUT
    assert "no record of a benchmark" in err


def test_a_recorded_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of simulated records; transfers cost what the simulation says, startup and bytes."""
    layout = ddp_layout(4)
    run = write_run(tmp_path / "run", simulate(layout, steps=12, seed=3, clocks=Clocks(0)))
    code, out, _ = call(capfd, "fit", run, "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    assert violations(told, SCHEMA) == []
    assert {one["n_ranks"] for one in told["fits"]} == {4}
    assert Op.ALL_REDUCE in {one["op"] for one in told["fits"]}
    code, out, _ = call(capfd, "fit", run, run)
    assert code == ExitCode.OK
    assert "longer" not in out


def test_no_upper_end_of_the_rate_is_null(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Times that do not grow with the size."""
    code, out, _ = call(capfd, "fit", table(tmp_path / "a.txt", 500.0, 1e6, SIZES[:5]), "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    assert violations(told, SCHEMA) == []
    assert told["fits"][0]["rate_high_gbs"] is None
