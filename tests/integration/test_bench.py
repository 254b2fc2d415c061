"""``comminsight bench`` for real: gloo ranks that PyTorch's launcher starts, and how they end."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from comminsight.cli.bench import main
from comminsight.errors import ExitCode, InputError, UsageError
from comminsight.model.bench import COLLECTIVES, BenchPlan, Decision, EvidenceLevel
from comminsight.probe.bench_launch import measure, read_record
from comminsight.probe.bench_processes import MARK

pytestmark = pytest.mark.real
ENDLESS = BenchPlan(
    backend="gloo", elements=(64,), algorithms=("Auto",), warmup=0, repeats=10_000_000
)  # fmt: skip


def short(*algorithms: str, label: str = "default") -> BenchPlan:
    return BenchPlan(
        backend="gloo", elements=(8,), algorithms=algorithms, warmup=0, repeats=3, label=label
    )  # fmt: skip


def ranks_of(plan_folder_word: bytes = b"comminsight.probe.bench_ranks") -> dict[int, int]:
    """Process by local rank, of the launch that this process started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            pairs = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        said = dict(pair.partition(b"=")[::2] for pair in pairs)
        if plan_folder_word in words and MARK.encode() in said and said.get(b"HOLDER") == MINE:
            found[int(said.get(b"LOCAL_RANK", b"-1"))] = int(folder.name)
    return found


MINE = str(os.getpid()).encode()


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDER", MINE.decode())
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


def measured_twice(folder: Path) -> Path:
    words = ["--run", "--backend", "gloo", "--elements", "1001", "--warmup", "1", "--repeats", "12",
             "--label", "like", "--out", str(folder), "--json"]  # fmt: skip
    assert main(words) == ExitCode.OK
    return folder / "like-Auto-001.json"


def test_two_ranks_and_a_planted_slowness(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = measured_twice(tmp_path)
    (told,) = json.loads(capfd.readouterr().out)["records"]
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

    record = read_record(path)
    assert main(["compare", str(path), str(path)]) == ExitCode.OK
    rows = [slowed(record.metrics.rows[0], 30.0), *record.metrics.rows[1:]]
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


def slowed(row: msgspec.Struct, factor: float) -> msgspec.Struct:
    return msgspec.structs.replace(
        row, median_max_rank_ms=factor * row.median_max_rank_ms,
        max_rank_ms=tuple(factor * one for one in row.max_rank_ms),
    )  # fmt: skip


def test_a_killed_rank_is_a_recorded_failure(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, ENDLESS, tmp_path, timeout_s=100)
        wait_for_ranks()
        time.sleep(2)  # in mid-run
        os.kill(ranks_of()[1], signal.SIGKILL)
        record = read_record(*going.result())
    assert record.failure.startswith("the launcher ended with 1, a rank with ")
    assert record.decision is Decision.DISCARD
    assert record.evidence_level in {EvidenceLevel.PARTIAL, EvidenceLevel.NONE}
    assert ranks_of() == {}


def test_ranks_that_lose_their_launcher_are_ended_too(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, ENDLESS, tmp_path, timeout_s=100)
        wait_for_ranks()
        os.kill(ranks_of()[-1], signal.SIGKILL)
        record = read_record(*going.result())
    assert record.failure.startswith("the launcher ended with -9")
    assert ranks_of() == {}


def test_a_time_out_leaves_no_process(tmp_path: Path) -> None:
    record = read_record(*measure(ENDLESS, tmp_path, timeout_s=8))
    assert (record.failure, record.decision) == ("not done after 8 s", Decision.DISCARD)
    assert ranks_of() == {}


def wait_for_ranks() -> None:
    deadline = time.monotonic() + 60
    while not {-1, 0, 1} <= ranks_of().keys():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
     ["--elements", "many"], ["--algorithms", "Star"]],
)  # fmt: skip
def test_plans_that_cannot_be_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        main(words)
