"""Answers of NCCL's RAS in a run: kept beside the hang, read back, shown in the report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comminsight.cli import main
from comminsight.diagnosis import codes
from comminsight.errors import InputError
from comminsight.launch import watch as watching
from comminsight.model.hang import HangEvent
from comminsight.model.ras import RasForm
from comminsight.model.verdict import Cause
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.ras_store import ras_of, read_kept_ras, read_ras, write_ras
from comminsight.run import open_run
from tests.builders.ras import TEXT_BEHIND, ras_comm, ras_json, ras_missing, ras_rank
from tests.builders.ras_server import RasServer, serving
from tests.builders.records import comm_row
from tests.unit.launch.test_ras_asking import NcclNode

COMM_HASH = int(comm_row(1, "0-3")["comm_hash"][0])
ANSWERED = [ras_rank(rank, launched=2, pid=1000 + rank) for rank in (0, 1, 3)]
JSON = ras_json(ras_comm(COMM_HASH, ANSWERED, [ras_missing(2, dead=True) | {"pid": 1002}]))


@pytest.fixture
def paths(tmp_path):
    made = RunPaths(tmp_path / "run")
    made.create()
    return made


def test_answers_are_kept_as_they_came_and_read_in_order(paths):
    write_ras(paths, RasForm.JSON, JSON, observed_mono_ns=1000)
    assert write_ras(paths, RasForm.TEXT, TEXT_BEHIND.encode(), observed_mono_ns=200).exists()
    (paths.hangs / "ras-5.json").write_bytes(b"{")
    (paths.hangs / "ras-6.json.tmp").write_bytes(b"half")
    (paths.hangs / "hang-0001-1.json").write_bytes(b"{}")
    readings, unreadable = read_kept_ras(paths)
    assert [(r.observed_mono_ns, r.source, r.answer.form) for r in readings] == [
        (200, "ras-200.txt", RasForm.TEXT), (1000, "ras-1000.json", RasForm.JSON),
    ]  # fmt: skip
    assert unreadable == ["ras-5.json"]
    assert (paths.hangs / "ras-1000.json").read_bytes() == JSON


def test_a_run_without_hangs_has_no_answers(tmp_path):
    assert read_kept_ras(RunPaths(tmp_path)) == ([], [])


def event(observed_mono_ns):
    return HangEvent(
        observed_mono_ns=observed_mono_ns, observed_real_ns=0, overdue_limit_ns=1, world_size=1,
        ranks=(), in_flight=(), progress=(),
    )  # fmt: skip


def test_the_last_answer_of_a_lasting_hang_counts_and_every_given_file(paths):
    for observed_mono_ns in (1, 2, 3):
        write_ras(paths, RasForm.JSON, JSON, observed_mono_ns=observed_mono_ns)
    kept, _ = read_kept_ras(paths)
    given = [read_ras(paths.hangs / "ras-1.json")]
    assert ras_of(given, kept, []) == (given[0],)
    assert ras_of([], kept, [event(1), event(2), event(9)]) == (kept[1],)
    assert ras_of(given, kept, [event(3)]) == (kept[2], given[0])


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_file_that_cannot_be_read_is_named(name, tmp_path):
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_ras(tmp_path / name)
    assert str(tmp_path) in str(caught.value)


@pytest.fixture
def hung(tmp_path, monkeypatch):
    """The run of four ranks of which rank 2 is absent, with RAS asked while it hung."""
    monkeypatch.setattr(watching, "take_stacks", lambda *_: ())
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    node = NcclNode(tmp_path)
    with serving(RasServer(json=JSON)) as server:
        for rank in range(4):
            node.nccl_rank(rank, server.address, waiting=rank != 2)
        node.watch.gather()
        node.watch.finish()
    assert node.watch.notes == []
    return node.paths


def ras_codes(verdict):
    return [entry.message.code for entry in verdict.evidence if entry.kind == "ras"]


def test_the_report_shows_what_ras_said_while_it_hung(hung):
    made = open_run(hung.root).report()
    (verdict,) = made.verdicts
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert ras_codes(verdict) == [codes.RAS_ASKED, codes.RAS_DEAD_LEAD]
    lead = next(e for e in verdict.evidence if e.message.code == codes.RAS_DEAD_LEAD)
    assert lead.message.params == {"ranks": [2], "pid": 1002, "host": "10.0.0.1"}
    assert codes.CHECK_PROCESS in {action.code for action in verdict.next_actions}


@pytest.mark.parametrize(
    ("lang", "said"),
    [
        ("en", "a lead by RAS alone: it considers process 1002 on 10.0.0.1 dead (rank 2)"),
        ("zh", "仅来自 RAS 的线索：它认为 10.0.0.1 上的进程 1002 已死亡（Rank 2）"),
    ],
)
def test_the_verb_takes_an_answer_by_hand(lang, said, hung, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for kept in hung.hangs.glob("ras-*"):
        kept.unlink()
    mine = tmp_path / "mine.out"
    mine.write_bytes(b"SERVER PROTOCOL 2\nOK\n" + JSON)
    assert main(["report", str(hung.root), "--ras", str(mine), "--lang", lang]) == 0
    out = capfd.readouterr().out
    assert said in out
    assert "mine.out" in out


def test_an_answer_that_is_none_ends_the_verb_with_3(hung, tmp_path, capfd):
    bad = tmp_path / "bad.json"
    bad.write_text('{"communicators": 3}')
    assert main(["report", str(hung.root), "--ras", str(bad)]) == 3
    err = capfd.readouterr().err
    assert "bad.json" in err
    assert "$.communicators" in err
    assert "ncclras" in err


def test_a_kept_answer_that_does_not_read_is_a_note(hung):
    (kept,) = hung.hangs.glob("ras-*.json")
    kept.write_bytes(JSON[:100])
    made = open_run(hung.root).report()
    assert ras_codes(made.verdicts[0]) == []
    (note,) = [note for note in made.notes if note.code == "note.unreadable"]
    assert note.params == {"n_files": 1, "first": kept.name}


def test_a_named_pipe_is_refused_and_one_of_a_shell_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="named pipe"):
        read_ras(pipe)
    reader, writer = os.pipe()
    os.write(writer, JSON)
    os.close(writer)
    assert read_ras(Path(f"/dev/fd/{reader}")).answer.is_whole
    os.close(reader)
