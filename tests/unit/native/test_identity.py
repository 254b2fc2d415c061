"""Long paths and full environments: what names the run is kept whole, the rest makes room."""

from __future__ import annotations

import os

import pytest

from tests.unit.native.reading import read_box, read_session

RECORD = (
    "c = d.register(); d.ops(c, 5); d.flush(); tell(box=d.box, segment=d.segment, closed=d.close())"
)
BOX_JSON_BYTES = 8192


def deep(root, length):
    """A directory path below ``root`` of exactly so many bytes."""
    path = str(root)
    while length - len(path) > 200:
        path += "/" + "d" * 99
    return path + "/" + "e" * (length - len(path) - 1)


def recorded(stage, **env):
    told = stage.run(RECORD, **env)
    header = read_box(told["box"]).identity
    (session,) = os.scandir(env.get("COMMINSIGHT_SPOOL", stage.spool))
    (first, *_) = read_session(session.path).identities
    assert first == header
    return told, header


@pytest.mark.parametrize("length", [191, 193, 600, 3900])
def test_directory_of_the_run_is_kept_whole(stage, tmp_path, length):
    spool = deep(tmp_path, length)
    told, header = recorded(stage, COMMINSIGHT_SPOOL=spool, COMMINSIGHT_RUN_ID="r" * 255)
    assert header["environment"]["COMMINSIGHT_SPOOL"] == spool
    assert header["environment"]["COMMINSIGHT_RUN_ID"] == "r" * 255
    assert header["identity"]["run_id"] == "r" * 255
    assert told["segment"].startswith(spool)


def test_long_run_id_is_kept_whole(stage):
    _, header = recorded(stage, COMMINSIGHT_RUN_ID="r" * 2000)
    assert header["identity"]["run_id"] == header["environment"]["COMMINSIGHT_RUN_ID"] == "r" * 2000


def test_variables_of_others_make_room_and_it_is_said(stage, tmp_path):
    spool = deep(tmp_path, 3000)
    crowd = {f"NCCL_{i:03}": "v" * 100 for i in range(100)}
    told, header = recorded(
        stage, COMMINSIGHT_SPOOL=spool, COMMINSIGHT_RUN_ID="mine", COMMINSIGHT_ZEBRA="own", **crowd
    )
    environment = header["environment"]
    assert environment["COMMINSIGHT_SPOOL"] == spool
    assert (environment["COMMINSIGHT_RUN_ID"], environment["COMMINSIGHT_ZEBRA"]) == ("mine", "own")
    kept = sum(name in environment for name in crowd)
    assert 0 < kept < 100
    assert header["environment_dropped"] == 100 - kept
    assert told["stderr"].count("environment") == 1
    assert f"{100 - kept} " in told["stderr"]


def test_later_versions_never_cost_the_name_of_the_run(stage, tmp_path):
    spool = deep(tmp_path, 1500)
    crowd = {f"NCCL_{i:03}": "v" * 100 for i in range(100)}
    told = stage.run(
        """
        c = d.register()
        for i in range(24):
            d.lib.ci_identity(b"versions.%d" % i, b"v" * 190)
        d.ops(c, 5)
        d.flush()
        tell(box=d.box, closed=d.close())
        """,
        COMMINSIGHT_SPOOL=spool, COMMINSIGHT_RUN_ID="mine", **crowd,
    )  # fmt: skip
    header = read_box(told["box"]).identity
    assert header["environment"]["COMMINSIGHT_SPOOL"] == spool
    assert header["versions"]["comminsight"]


@pytest.mark.parametrize("run_id", ['"' * 4000, "r" * 9000])
def test_absurd_run_id_leaves_whole_json(stage, run_id):
    told, header = recorded(stage, COMMINSIGHT_RUN_ID=run_id)
    assert len(header["identity"]["run_id"]) >= 191
    assert run_id.startswith(header["identity"]["run_id"])
    assert "COMMINSIGHT_RUN_ID" in told["stderr"]
    assert header["environment"]["COMMINSIGHT_SPOOL"] == str(stage.spool)


def test_path_longer_than_a_path_can_be_is_no_path(stage, tmp_path):
    told = stage.run(RECORD, COMMINSIGHT_BOX_DIR=deep(tmp_path, 5000))
    assert "COMMINSIGHT_BOX_DIR is longer than a path can be" in told["stderr"]
    assert told["box"].startswith("/dev/shm/")
    os.unlink(told["box"])


def test_relative_directories_stay_where_the_process_began(stage, tmp_path):
    told = stage.run(
        """
        import ctypes
        begin, after = os.environ["BEGIN"], os.environ["AFTER"]
        os.chdir(begin)
        c = d.register()
        d.flush()
        os.chdir(after)
        d.ops(c, 20_000)
        d.flush()
        tell(box=d.box, segment=d.segment, closed=d.close())
        """,
        COMMINSIGHT_BOX_DIR="box", COMMINSIGHT_SPOOL="spool", COMMINSIGHT_SEGMENT_MB="1",
        BEGIN=str(tmp_path), AFTER=str(tmp_path.parent),
    )  # fmt: skip
    assert told["closed"] == 0
    assert told["box"].startswith(str(tmp_path / "box"))
    assert told["segment"].startswith(str(tmp_path / "spool"))
    assert len(stage.stream().of(1)) == 20_000
