"""What counts as a run: a run directory, a spool, a folder of black boxes; and which run of a spool
is meant."""

import pytest

from comminsight.errors import InputError
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.load import load_run
from tests.builders.box import box_bytes
from tests.builders.records import allreduce, comm_row, comm_rows, identity, ops
from tests.builders.segment import segment_bytes

COMMS = comm_rows(comm_row(1, "0-1"))


def spooled(folder, rank, **who):
    own = identity(rank, **who)
    session = folder / own.session_id
    session.mkdir(parents=True)
    data = segment_bytes(ops(allreduce(1, 100.0, comm=1)), COMMS, own)
    (session / "000001.ciseg").write_bytes(data)


def boxed(folder, rank, **who):
    own = identity(rank, **who)
    (folder / f"{own.pid}-1-1.box").write_bytes(box_bytes(ops(), COMMS, own))


@pytest.mark.parametrize("folders", [("inspector_logs",), ("blackbox",)])
def test_a_run_directory_may_be_empty(folders, tmp_path):
    for name in folders:
        (tmp_path / name).mkdir()
    paths = run_paths(tmp_path)
    assert not paths.is_spool
    assert paths.segments == tmp_path / "inspector_logs"


@pytest.mark.parametrize("write", [spooled, boxed])
def test_what_recorders_wrote_directly_is_a_run(write, tmp_path):
    write(tmp_path, 0)
    paths = run_paths(tmp_path)
    assert paths.is_spool
    assert paths.segments == paths.boxes == tmp_path
    assert [s.identity.global_rank for s in load_run(paths, ()).sessions] == [0]


def test_folders_of_such_a_name_alone_are_none(tmp_path):
    (tmp_path / "b007b007-1-1").mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "bad.box").write_bytes(b"no box")
    with pytest.raises(InputError, match="not a CommInsight run"):
        run_paths(tmp_path)


def test_of_several_runs_in_a_spool_the_last_counts(tmp_path):
    spooled(tmp_path, 0, pid=10, run_id="old", created_real_ns=1_000)
    spooled(tmp_path, 2, pid=11, run_id="old", created_real_ns=1_000)
    spooled(tmp_path, 0, pid=12, run_id="new", created_real_ns=2_000)
    spooled(tmp_path, 1, pid=13, run_id="new", created_real_ns=1_900)
    loaded = load_run(run_paths(tmp_path), ())
    assert [s.identity.global_rank for s in loaded.sessions] == [0, 1]
    assert {s.identity.run_id for s in loaded.sessions} == {"new"}
    assert [s.identity.run_id for s in loaded.other_runs] == ["old", "old"]
    assert loaded.earlier_lives == ()
