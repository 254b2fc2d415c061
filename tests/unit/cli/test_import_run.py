"""``comminsight import`` and the verbs that take what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.ops import Op
from tests.builders.activities import comm, compute, in_steps, on_ranks
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.inspector import inspector_text
from tests.builders.json_schema import violations
from tests.builders.kineto import write_traces
from tests.unit.cli.calling import call

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schema/import.json").read_text())
STEP = (compute(0, 0, 300), comm(0, Op.ALL_REDUCE, 300, 80, size_bytes=1 << 20))
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces", on_ranks((0, 1), in_steps(STEP, 3, 1000)), 2)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "dumps"
    folder.mkdir()
    job = parallel_job(2, 2, 2)
    job.host_stops[5] = 30
    write_dumps(folder, job.play())
    return folder


def test_json_is_as_its_schema_says(traces: Path, tmp_path: Path, capfd: Capture) -> None:
    code, out, _ = call(
        capfd, "import", traces, "--out", tmp_path / "run", "--world-size", 4, "--json"
    )
    told = json.loads(out)
    assert (code, violations(told, SCHEMA)) == (0, [])
    assert told["world_size"] == 4
    assert [(one["n_read"], one["n_written"]) for one in told["ranks"]] == [(3, 3), (3, 3)]


def test_a_folder_with_something_in_it_is_refused(
    traces: Path, tmp_path: Path, capfd: Capture
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine").write_text("x")
    code, printed, err = call(capfd, "import", traces, "--out", out)
    assert (code, printed) == (3, "")
    assert "not empty" in err
    assert {path.name: path.read_text() for path in out.iterdir()} == {"mine": "x"}


def test_a_run_below_its_source_does_not_hold_itself(traces: Path, capfd: Capture) -> None:
    out = traces / "runs" / "a"
    assert call(capfd, "import", traces, "--out", out)[0] == 0
    kept = [path.name for path in (out / "evidence").rglob("*") if path.is_file()]
    assert sorted(kept) == ["job_rank0.json", "job_rank1.json"]


def test_a_source_that_is_not_there_is_named(traces: Path, tmp_path: Path, capfd: Capture) -> None:
    gone = tmp_path / "gone.json"
    code, _, err = call(capfd, "import", traces, gone, "--out", tmp_path / "run")
    assert code == 3
    assert str(gone) in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ("steps",), ("whatif",), ("exposed",), ("show", "--rank", 0, "--step", 0),
        ("show", "--rank", 0, "--pairs"), ("show", "--op", "0:1"),
        ("export", "--format", "parquet"), ("export", "--format", "inspector"),
    ],
)  # fmt: skip
def test_without_ops_a_verb_on_ops_says_so(
    argv: tuple[object, ...], dumps: Path, tmp_path: Path, capfd: Capture
) -> None:
    run = tmp_path / "run"
    assert call(capfd, "import", dumps, "--out", run)[0] == 0
    code, out, err = call(capfd, argv[0], run, *argv[1:])
    assert (code, out) == (3, "")
    assert "no op with its times" in err
    assert f"comminsight report {run}" in err
    assert not (run / "events").exists()


def test_records_with_no_start_are_counted(tmp_path: Path, capfd: Capture) -> None:
    for rank in (0, 1):
        (tmp_path / f"{rank}.log").write_bytes(inspector_text(rank, 2, range(5)))
    files = [tmp_path / "0.log", tmp_path / "1.log"]
    code, out, _ = call(capfd, "import", *files, "--out", tmp_path / "run", "--json")
    assert code == 0
    for one in json.loads(out)["ranks"]:
        assert one["n_read"] == 5
        assert one["n_written"] + one["n_bad"] + sum(one["dropped"].values()) == 5
        assert one["dropped"] == {"no_start_time": 5}
    words = call(capfd, "import", *files, "--out", tmp_path / "words")[1]
    assert words.count("do not tell when the op began: 5") == 2
    assert "no file gives ops with times" in words


def test_clocks_that_nothing_joins_are_not_known_to_agree(tmp_path: Path, capfd: Capture) -> None:
    stated = [comm(0, Op.ALL_REDUCE, 300, 80)]
    unstated = [comm(1, Op.ALL_REDUCE, 300, 80, comm_label="", name="ncclDevKernel_AllReduce_Sum")]
    write_traces(tmp_path / "traces", in_steps([*stated, *unstated], 14, 1000), 2)
    run = tmp_path / "run"
    assert call(capfd, "import", tmp_path / "traces", "--out", run)[0] == 0
    told = json.loads(call(capfd, "steps", run, "--json")[1])
    assert int(told["coverage"]["clock_error_ns"]) == UNBOUNDED_NS
    words = " ".join(call(capfd, "steps", run)[1].split())
    assert "how well the clocks of the ranks agree is not known" in words
