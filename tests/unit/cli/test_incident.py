"""``comminsight incident``: the same verdicts elsewhere, and no name of the place it came from."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from comminsight.format.layout import SLOT_OVERDUE
from comminsight.model.hang import HangEvent, Stack, StackSource
from comminsight.model.manifest import LaunchManifest, ProcessEnd
from comminsight.pipeline.hang_store import write_hang
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.manifest import manifest_path, write_manifest
from comminsight.run import open_run
from comminsight.sim import LateRank, simulate
from tests.builders.box import InFlight, box_bytes
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.builders.records import Stream, allreduce, comm_row, comm_rows, identity
from tests.builders.run import small_layout, write_run
from tests.builders.segment import segment_bytes, write_segment
from tests.unit.cli.calling import call

HOST, USER, ADDRESS = "amber-17", "annabel", "10.40.50.60"
FOLDER = f"/home/{USER}/projects/giant"
REAL = (HOST, USER, ADDRESS, "projects", "giant")
BOOT = "0f0f0f0f-0000-4000-8000-000000000000"  # of no machine that runs this
ABSENT = 2


def verdicts(text: str) -> list[dict[str, Any]]:
    """What a report says, without the places in its evidence that names stand in."""
    kept = ("rule", "cause", "confidence", "culprits", "victims", "comm_id", "first_bad_op",
            "measures", "missing")  # fmt: skip
    return [{key: one[key] for key in kept} for one in json.loads(text)["verdicts"]]


def identity_of(rank: int) -> Any:
    return identity(rank, 4, host=HOST, boot_id=BOOT, run_id=f"{USER}-job")


def hung_run(root: Path, *, is_over: bool) -> Path:
    """Four ranks on one node; one has not entered the op that the others wait in."""
    paths = RunPaths(root)
    paths.create()
    comms = comm_rows(comm_row(1, "0-3", comm_hash=0x11, name=b"0", desc=b"default_pg"))
    for rank in range(4):
        stream = Stream()
        for step in range(6):
            stream.allreduce(100.0 * step + rank, 5, size=1 << 20)
        who, rows = identity_of(rank), comms.copy()
        rows["comm_rank"] = rank
        data = segment_bytes(stream.batch(), rows, who, sealed=False)
        write_segment(paths.segments / who.session_id, data, sealed=False)
        waiting = InFlight(
            allreduce(0, 700.0, op_seq=7, match_seq=7, size=1 << 20), state=SLOT_OVERDUE
        )
        in_flight = () if rank == ABSENT else (waiting,)
        box = box_bytes(stream.batch(), rows, who, in_flight=in_flight, drained_seq=6,
                        heartbeat_mono_ns=90_000_000_000)  # fmt: skip
        (paths.boxes / f"{who.pid}-{who.pid_start_ticks}-1.box").write_bytes(box)
    ends = tuple(
        ProcessEnd(session_id=identity_of(rank).session_id, ended_mono_ns=91_000_000_000,
                   exit_signal=15) for rank in range(4)
    )  # fmt: skip
    manifest = LaunchManifest(
        run_id=f"{USER}-job", host=HOST, boot_id=BOOT, launcher_pid=77, spool=f"{FOLDER}/spool",
        command=("torchrun", f"--rdzv_endpoint={HOST}:29500", f"{FOLDER}/train.py", ADDRESS),
        exit_code=143 if is_over else None, ends=ends if is_over else (),
        overdue_limit_ns=60_000_000_000,
    )  # fmt: skip
    write_manifest(manifest_path(paths, HOST, 77), manifest)
    with_evidence(root, paths)
    return root


def with_evidence(root: Path, paths: RunPaths) -> None:
    """The evidence of the hang as a launcher writes it: a stack, and what RAS says."""
    event: HangEvent = open_run(root).final_view()
    text = f"Process 9 on {HOST}\n  load ({FOLDER}/data.py:41) at {ADDRESS}"
    stack = Stack(global_rank=ABSENT, pid=1002, source=StackSource.PY_SPY, text=text)
    write_hang(paths, msgspec.structs.replace(event, stacks=(stack,)))
    ranks = [ras_rank(rank, host=HOST) for rank in range(4)]
    (paths.hangs / f"ras-{event.observed_mono_ns}.json").write_bytes(
        ras_json(ras_comm(0x11, ranks))
    )


def log_of(folder: Path) -> Path:
    """A log with every kind of name in it."""
    path = folder / f"{HOST}-rank2.log"
    path.write_text(
        f"{HOST}:1002:1003 [2] NCCL INFO Bootstrap : Using eth0:{ADDRESS}<0>\n"
        f'  File "{FOLDER}/train.py", line 3, in <module>\n'
        f"{USER}@{HOST}: done\n"
    )
    return path


def write_late(root: Path) -> Path:
    late = LateRank(3, 80_000_000)
    return write_run(root, simulate(small_layout(), steps=25, seed=3, faults=(late,)))


def write_flight(root: Path) -> Path:
    job = parallel_job(2, 2, 2)
    job.host_stops[5] = 30
    root.mkdir()
    write_dumps(root, job.play())
    return root


KINDS = {
    "late": write_late,
    "hung": lambda root: hung_run(root, is_over=False),
    "ended": lambda root: hung_run(root, is_over=True),
    "flight recorder": write_flight,
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_gives_the_same_verdicts(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], *, keep: bool
) -> None:
    path, out = KINDS[kind](tmp_path / "given"), tmp_path / "x.tar"
    verb = "diagnose" if kind == "flight recorder" else "report"
    _, before, _ = call(capfd, verb, path, "--json")
    assert verdicts(before)[0]["culprits"]
    options = ["--keep-names"] if keep else []
    code, said, err = call(capfd, "incident", path, "--out", out, *options)
    assert (code, err) == (0, "")
    assert "the same verdicts" in said
    assert ("names are kept" in said) == keep
    for again in ("report", "diagnose"):
        code, after, _ = call(capfd, again, out, "--json")
        assert (code, verdicts(after)) == (0, verdicts(before)), again
        assert json.loads(after)["facts"]["path"] == str(out)
    code, text, _ = call(capfd, "explain", out)
    assert (code, json.loads(before)["verdicts"][0]["cause"] in text) == (0, True)


@pytest.mark.parametrize("kind", ["hung", "ended"])
def test_no_real_name_is_left_in_any_byte(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, out = KINDS[kind](tmp_path / "given"), tmp_path / "x.tar"
    log = log_of(tmp_path)
    code, said, _ = call(capfd, "incident", path, log, "--out", out)
    assert code == 0
    assert "masked: 1 host, 1 user, 1 address," in said
    data = out.read_bytes()
    assert [name for name in REAL if name.encode() in data] == []
    for kept in (b"host-1", b"user-1-job", b".../data.py:41", b"198.18.0.1<0>", b".../train.py"):
        assert kept in data
    call(capfd, "incident", path, log, "--out", tmp_path / "kept.tar", "--keep-names")
    assert [
        name for name in REAL if name.encode() not in (tmp_path / "kept.tar").read_bytes()
    ] == []


def test_a_copy_is_judged_by_what_was_known_when_it_was_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes and processes of the machine that reads it are not the job's."""
    out = tmp_path / "x.tar"
    path = hung_run(tmp_path / "given", is_over=False)
    call(capfd, "incident", path, "--out", out)
    _, before, _ = call(capfd, "report", out, "--json")
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(path / "blackbox"))
    monkeypatch.setattr("comminsight.capture.box.boot_id", lambda: BOOT)
    monkeypatch.setattr("comminsight.pipeline.facts.boot_id", lambda: BOOT)
    _, after, _ = call(capfd, "report", out, "--json")
    assert json.loads(after) == json.loads(before)


def test_files_of_no_known_form_are_left_out_and_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dumps = write_flight(tmp_path / "given")
    (dumps / "core").write_bytes(os.urandom(5000))
    code, said, _ = call(capfd, "incident", dumps, "--out", tmp_path / "x.tar")
    assert code == 0
    assert "left out: 1 file of no form" in said
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert not any("core" in name for name in tar.getnames())


def test_a_file_that_is_there_is_not_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.tar"
    out.write_text("mine")
    code, _, err = call(capfd, "incident", write_flight(tmp_path / "given"), "--out", out)
    assert (code, "is there already" in err, out.read_text()) == (3, True, "mine")
    code, _, err = call(capfd, "incident", tmp_path / "given", "--out", tmp_path / "no" / "x.tar")
    assert (code, "cannot be written" in err) == (3, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "x.tar"]


@pytest.mark.parametrize("form", ["gzip", "utf-16", "long line"])
def test_files_of_other_encodings_lose_their_names_too(
    form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    text = log_of(tmp_path).read_text() + f"see {FOLDER}/x.py " * (
        3_000 if form == "long line" else 1
    )
    data = text.encode("utf-16" if form == "utf-16" else "utf-8")
    (given / "rank2.log").write_bytes(gzip.compress(data) if form == "gzip" else data)
    code, said, _ = call(capfd, "incident", given, "--out", tmp_path / "x.tar")
    assert (code, "the same verdicts" in said, "left out" in said) == (0, True, False)
    found = (tmp_path / "x.tar").read_bytes()
    assert b"host-1:1002:1003 [2] NCCL INFO" in found
    assert [name for name in REAL if name.encode() in found] == []
