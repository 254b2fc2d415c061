"""``comminsight bench`` for real: gloo ranks that PyTorch's launcher starts, and how they end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from comminsight.cli.bench import main
from comminsight.errors import ExitCode, InputError, UsageError
from comminsight.model.bench import BenchPlan, BenchRecord, BenchRun, Decision, EvidenceLevel
from comminsight.model.bench_algorithms import COLLECTIVES
from comminsight.probe.bench_launch import measure, read_record
from comminsight.report.json_form import schema_text
from tests.builders.bench_processes import (
    LAUNCHER,
    have_begun,
    hold,
    pid_of,
    processes,
    wait_until,
)

pytestmark = pytest.mark.real
ENDLESS = BenchPlan(
    backend="gloo", elements=(64,), algorithms=("Auto",), warmup=0, repeats=10_000_000
)  # fmt: skip


def short(*algorithms: str, label: str = "default") -> BenchPlan:
    return BenchPlan(
        backend="gloo", elements=(8,), algorithms=algorithms, warmup=0, repeats=3, label=label
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch)


def measured_twice(folder: Path) -> Path:
    words = ["--run", "--backend", "gloo", "--elements", "1001", "--warmup", "1", "--repeats", "12",
             "--label", "like", "--out", str(folder), "--json"]  # fmt: skip
    assert main(words) == ExitCode.OK
    return folder / "like-Auto-001.json"


def test_two_ranks_and_a_planted_slowness(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = measured_twice(tmp_path)
    out = capfd.readouterr().out
    assert msgspec.json.decode(out, type=BenchRun).records == (read_record(path),)
    (told,) = json.loads(out)["records"]
    assert [row["collective"] for row in told["metrics"]["rows"]] == list(COLLECTIVES)
    row = told["metrics"]["rows"][0]
    assert row["payload_bytes_per_rank"] == 4008  # 1001 made up to a multiple of two ranks
    assert [len(times) for times in row["rank_ms"]] == [12, 12]
    assert row["median_max_rank_ms"] <= row["p95_max_rank_ms"] == max(row["max_rank_ms"])
    assert told["algorithm_observed"] == "unconfirmed"
    assert (told["decision"], told["evidence_level"]) == ("use_times", "measured")
    assert told["rs_ag_equals_all_reduce"] is True

    before = path.read_bytes()
    (again,) = measure(short("Auto", label="like"), tmp_path, timeout_s=120)
    assert (again.name, path.read_bytes()) == ("like-Auto-002.json", before)

    shown = tmp_path / "shown.svg"
    capfd.readouterr()
    assert main(["show", str(path), str(again), "--plot", str(shown)]) == ExitCode.OK
    assert capfd.readouterr().out.count("Auto on gloo, 2 ranks") == 2
    assert "like: gloo Auto" in shown.read_text()

    record = undisturbed(path)
    assert main(["compare", str(path), str(path)]) == ExitCode.OK
    rows = [slowed(record.metrics.rows[0], 1e5), *record.metrics.rows[1:]]
    metrics = msgspec.structs.replace(record.metrics, rows=tuple(rows))
    slow = tmp_path / "slow.json"
    slow.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, metrics=metrics)))
    capfd.readouterr()
    assert main(["compare", str(path), str(slow), "--json"]) == ExitCode.FINDING
    changes = {
        row["collective"]: row["change"] for row in json.loads(capfd.readouterr().out)["rows"]
    }
    assert changes == dict.fromkeys(COLLECTIVES, "no_change_shown") | {"all_reduce": "slower"}
    assert main(["compare", str(path), str(again)]) == ExitCode.BAD_INPUT
    assert "workload_id" in capfd.readouterr().out


def undisturbed(path: Path) -> BenchRecord:
    """The record, rewritten as of a machine without other work."""
    record = read_record(path)
    rows = [msgspec.structs.replace(row, waiting_repeats=0) for row in record.metrics.rows]
    metrics = msgspec.structs.replace(record.metrics, rows=tuple(rows))
    record = msgspec.structs.replace(record, metrics=metrics)
    path.write_bytes(msgspec.json.encode(record))
    return record


def slowed(row: msgspec.Struct, factor: float) -> msgspec.Struct:
    return msgspec.structs.replace(
        row, median_max_rank_ms=factor * row.median_max_rank_ms,
        max_rank_ms=tuple(factor * one for one in row.max_rank_ms),
    )  # fmt: skip


def test_a_killed_rank_is_a_recorded_failure(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, ENDLESS, tmp_path, timeout_s=100)
        wait_until(have_begun())
        time.sleep(2)  # in mid-run
        os.kill(pid_of(1), signal.SIGKILL)
        record = read_record(*going.result())
    assert record.failure.startswith("the launcher ended with 1, a rank with ")
    assert record.decision is Decision.DISCARD
    assert record.evidence_level in {EvidenceLevel.PARTIAL, EvidenceLevel.NONE}
    assert processes() == []


def test_ranks_that_lose_their_launcher_are_ended_too(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, ENDLESS, tmp_path, timeout_s=100)
        wait_until(have_begun())
        os.kill(pid_of(LAUNCHER), signal.SIGKILL)
        record = read_record(*going.result())
    assert record.failure.startswith("the launcher ended with -9")
    assert processes() == []


def test_a_failed_launch_leaves_the_others_their_rounds(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(ENDLESS, algorithms=("Auto", "Ring"), repeats=150)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, plan, tmp_path, timeout_s=100)
        wait_until(have_begun(n_launches=2))
        time.sleep(1)
        os.kill(pid_of(0, "Ring"), signal.SIGKILL)
        whole, killed = map(read_record, going.result())
    assert (whole.failure, whole.decision) == ("", Decision.USE_TIMES)
    assert [len(times) for times in whole.metrics.rows[0].rank_ms] == [150, 150]
    assert killed.failure.startswith("the launcher ended with 1, a rank with ")
    assert killed.decision is Decision.DISCARD
    assert processes() == []


def test_a_time_out_leaves_no_process(tmp_path: Path) -> None:
    record = read_record(*measure(ENDLESS, tmp_path, timeout_s=8))
    assert (record.failure, record.decision) == ("not done after 8 s", Decision.DISCARD)
    assert processes() == []


def test_too_few_gpus_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="4096 ranks need 4096 GPUs"):
        main(["--run", "--ranks", "4096", "--out", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "new")]) == ExitCode.OK
    assert "with Tree only all_reduce" in capfd.readouterr().out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", ["", "{}", "[", '{"schema_version": "9.0"}'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"a\.json"):
        read_record(tmp_path / "a.json")


@pytest.mark.parametrize(
    "words",
    [["--label", "../up"], ["--dtype", "int3"], ["--backend", "ucc"], ["--elements", "0"],
     ["--elements", "many"], ["--algorithms", "Star"], ["--algorithms", "Bruck"],
     ["--collectives", "gather"], ["--protocols", "LL256"],
     ["--backend", "gloo", "--protocols", "LL"], ["--backend", "mpi", "--dtype", "bfloat16"],
     ["--backend", "mpi", "--algorithms", "Bruck", "--collectives", "all_reduce"],
     ["--algorithms", "Tree", "--collectives", "broadcast"], ["--plot", "new.svg"]],
)  # fmt: skip
def test_plans_that_cannot_be_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        main(words)


def test_names_may_have_any_capitals(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--backend", "mpi", "--algorithms", "RECURSIVEdoubling,auto", "--collective",
             "All_Reduce", "--json"]  # fmt: skip
    assert main(words) == ExitCode.OK
    told = json.loads(capfd.readouterr().out)
    assert told["plan"]["algorithms"] == ["RecursiveDoubling", "Auto"]
    assert told["plan"]["collectives"] == ["all_reduce"]
    assert told["commands"][0].startswith(
        "env OMPI_MCA_coll_tuned_use_dynamic_rules=1 "
        "OMPI_MCA_coll_tuned_allreduce_algorithm=recursive_doubling"
    )


@pytest.mark.parametrize("name", ["there.svg", "link.png", "new.pdf", "none/new.svg"])
def test_a_plot_that_cannot_be_written_costs_no_measurement(tmp_path: Path, name: str) -> None:
    (tmp_path / "there.svg").touch()
    (tmp_path / "link.png").symlink_to(tmp_path / "nowhere.png")
    words = ["--backend", "gloo", "--run", "--out", str(tmp_path / "new")]
    with pytest.raises(UsageError, match="--plot"):
        main([*words, "--plot", str(tmp_path / name)])
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "nowhere.png").exists()


def test_without_matplotlib_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "comminsight.report.bench_plot", None)
    with pytest.raises(UsageError) as raised:
        main(["--backend", "gloo", "--run", "--plot", str(tmp_path / "new.svg")])
    assert raised.value.next_step.startswith("pip install 'comminsight[plot]'")


@pytest.mark.parametrize("name", ["bench-record", "bench-run", "bench-comparison"])
def test_the_published_schemas_are_those_of_the_code(name: str) -> None:
    published = Path(__file__).parents[2] / "docs" / "schema" / f"{name}.json"
    assert published.read_text() == schema_text(name)


def test_an_error_of_the_machine_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        measure(short("Auto"), tmp_path / "new", timeout_s=9)
    record = read_record(tmp_path / "new" / "default-Auto-001.json")
    assert record.failure == "did not come to its end"
    assert record.decision is Decision.DISCARD
