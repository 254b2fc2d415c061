"""Bad input through the front door: a clear error with its exit code, or a verdict with its
coverage; never a traceback, and nothing that is readable is lost."""

import json
import shutil

import pytest

from comminsight.errors import ExitCode
from comminsight.sim.cluster import simulate
from comminsight.sim.faults import LateRank
from tests.builders.box import box_bytes
from tests.builders.records import ops
from tests.builders.run import small_layout, write_run
from tests.unit.cli.calling import call

VERBS = ("report", "steps", "rebuild")


@pytest.fixture(scope="module")
def good_run(tmp_path_factory):
    late = LateRank(5, extra_ns=60_000_000, from_step=10)
    run = simulate(small_layout(), steps=24, seed=3, faults=(late,))
    return write_run(tmp_path_factory.mktemp("good") / "run", run)


@pytest.fixture
def run(good_run, tmp_path):
    return shutil.copytree(good_run, tmp_path / "run")


def report_json(capfd, run):
    code, out, _ = call(capfd, "report", run, "--json")
    assert code == ExitCode.OK
    return json.loads(out)


def culprits(report):
    return [v["culprits"] for v in report["verdicts"] if v["culprits"]]


def segments(run):
    return sorted((run / "inspector_logs").glob("*/*.ciseg"))


def test_the_untouched_run_is_judged(good_run, capfd):
    report = report_json(capfd, good_run)
    assert culprits(report) == [[5]]
    assert report["coverage"]["records_lost"] == 0


@pytest.mark.parametrize("verb", VERBS)
def test_missing_directory(verb, tmp_path, capfd):
    code, _, err = call(capfd, verb, tmp_path / "nowhere")
    assert code == ExitCode.BAD_INPUT
    assert "nowhere" in err
    assert "next:" in err


@pytest.mark.parametrize("verb", VERBS)
def test_empty_directory(verb, tmp_path, capfd):
    code, _, err = call(capfd, verb, tmp_path)
    assert code == ExitCode.BAD_INPUT
    assert "next:" in err


def test_a_run_in_which_nothing_was_recorded(tmp_path, capfd):
    (tmp_path / "inspector_logs").mkdir()
    code, out, _ = call(capfd, "report", tmp_path)
    assert code == ExitCode.OK
    assert "No verdict" in out


def test_only_foreign_files(tmp_path, capfd):
    folder = tmp_path / "inspector_logs" / "deadbeef-1-1"
    folder.mkdir(parents=True)
    (folder / "000001.ciseg").write_bytes(b"PK\x03\x04 a zip, they said" * 40)
    code, _, err = call(capfd, "report", tmp_path)
    assert code == ExitCode.BAD_INPUT
    assert "000001.ciseg" in err


@pytest.mark.parametrize("bad", ["foreign", "truncated header", "wrong version", "hostile header"])
def test_one_unreadable_segment_costs_one_rank(bad, run, capfd):
    path = segments(run)[2]
    data = bytearray(path.read_bytes())
    if bad == "foreign":
        data = bytearray(b"\x7fELF" + bytes(500))
    elif bad == "truncated header":
        data = data[:40]
    elif bad == "wrong version":
        data[8:10] = (99).to_bytes(2, "little")
    else:
        data[12:20] = b"\xff" * 8  # header and JSON of four gigabytes
    path.write_bytes(data)
    report = report_json(capfd, run)
    assert report["coverage"]["ranks_seen"] == 7
    assert report["coverage"]["ranks_missing"] == [2]
    assert [n["code"] for n in report["notes"]] == ["note.unreadable"]
    assert call(capfd, "report", run, "--strict")[0] == ExitCode.PARTIAL
    assert culprits(report) in ([[5]], [])


@pytest.mark.parametrize("cut_bytes", [1, 500, 40_000])
def test_a_torn_tail_is_counted_and_the_rest_is_read(cut_bytes, run, capfd):
    path = segments(run)[1]
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    report = report_json(capfd, run)
    assert report["coverage"]["ranks_seen"] == 8
    assert culprits(report) in ([[5]], [])


def test_a_flipped_bit_loses_one_frame_and_says_so(run, capfd):
    path = segments(run)[4]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    report = report_json(capfd, run)
    assert report["tally"]["segment_frames_bad"] >= 1
    assert report["coverage"]["records_lost"] > 0
    assert culprits(report) in ([[5]], [])


def test_an_unreadable_box_beside_good_segments(run, capfd):
    (run / "blackbox").mkdir()
    (run / "blackbox" / "1-1-1.box").write_bytes(b"not a box")
    whole = box_bytes(ops())
    (run / "blackbox" / "2-1-1.box").write_bytes(whole[: len(whole) // 2])
    report = report_json(capfd, run)
    assert culprits(report) == [[5]]
    assert any(n["code"] == "note.unreadable" for n in report["notes"])


def test_a_rank_without_records_is_missing_not_guilty(run, capfd):
    shutil.rmtree(segments(run)[5].parent)
    report = report_json(capfd, run)
    assert report["coverage"]["ranks_missing"] == [5]
    assert culprits(report) == []
    assert [5] not in [v["victims"] for v in report["verdicts"]]


def test_a_run_without_a_single_step(tmp_path, capfd):
    run = write_run(tmp_path / "run", simulate(small_layout(), steps=1, seed=1))
    report = report_json(capfd, run)
    assert len(report["steps"]) <= 1
    assert culprits(report) == []
    assert call(capfd, "show", run, "--rank", "0", "--step", "9")[0] == ExitCode.BAD_INPUT
    assert call(capfd, "show", run, "--rank", "77", "--step", "0")[0] == ExitCode.BAD_INPUT


def test_a_bad_template_is_named(run, tmp_path, capfd):
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "mine.toml").write_text("file_version = 1\nunknown_key = 3\n")
    code, _, err = call(capfd, "steps", run, "--templates", folder)
    assert code == ExitCode.BAD_INPUT
    assert "mine.toml" in err


def test_a_manifest_and_a_hang_file_that_are_garbage(run, capfd):
    for folder, name in (("metadata", "launch-x-1.json"), ("hangs", "hang-0001-5.json")):
        (run / folder).mkdir()
        (run / folder / name).write_bytes(b"{\x00\xff")
    report = report_json(capfd, run)
    assert culprits(report) == [[5]]
    assert sum(n["code"] == "note.unreadable" for n in report["notes"]) == 1


def test_read_only_run_directory_can_be_reported(run, capfd):
    for path in [run, *run.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert culprits(report_json(capfd, run)) == [[5]]
    finally:
        for path in [run, *run.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
