"""The black box as a file: who may read it, where it goes, what outlives the process."""

from __future__ import annotations

import fcntl
import os
import stat
import struct

import numpy as np
import pytest

from comminsight.format import layout
from comminsight.model.records import is_ended_op
from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box, read_session

RECORDING = """
c = d.register(desc=b"world")
d.ops(c, 5)
hang = d.begin(c, BARRIER)
tell(box=d.box, segment=d.segment, inert=d.inert, handle=hang)
wait()
"""


def lock_holder(path):
    """pid of the process that holds the owner's lock, 0 when nobody does."""
    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    with open(path, "r+b") as box:
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(box, fcntl.F_GETLK, query))
    return 0 if kind == fcntl.F_UNLCK else pid


def test_box_is_private_locked_and_live(stage):
    child = stage.start(RECORDING)
    path = child.told()["box"]
    box = read_box(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(stage.box_dir).st_mode) == 0o700
    assert (
        os.stat(path).st_blocks * 512 >= layout.BOX_BYTES
    )  # reserved: no write can meet a full disk
    pid, created = child.process.pid, int(box.header["created_mono_ns"])
    assert os.path.basename(path) == f"{pid}-{box.header['pid_start_ticks']}-{created}.box"
    assert (box.header["magic"], box.header["state"], box.header["pid"]) == (
        layout.BOX_MAGIC,
        1,
        pid,
    )
    assert lock_holder(path) == pid
    assert box.identity["identity"]["session_id"].endswith(f"{pid}-{box.header['pid_start_ticks']}")
    assert box.ring["op_seq"].tolist() == [1, 2, 3, 4, 5]
    (slot,) = box.in_flight
    assert (slot["record"]["op_seq"], slot["record"]["seq"], slot["record"]["state"]) == (6, 0, 1)
    assert slot["owner_tid"] == pid
    child.go()
    child.finish()


@pytest.mark.parametrize("death", ["kill", "os._exit(3)", "os.abort()"])
def test_box_outlives_a_process_that_did_not_close(stage, death):
    child = stage.start(RECORDING + ("" if death == "kill" else death))
    path = child.told()["box"]
    eventually(lambda: read_box(path).header["drained_seq"] == 5)
    if death == "kill":
        child.kill()
    else:
        child.go()
        child.process.wait()
    box = read_box(path)
    assert box.header["state"] == 1
    assert lock_holder(path) == 0
    assert box.in_flight["record"]["op"].tolist() == [9]
    stream = stage.stream()
    assert stream.files[0].name == "000001.ciseg.open"
    assert len(stream.of(1)) == 5


def test_killed_writer_costs_at_most_one_frame(stage):
    child = stage.start("""
        c = d.register()
        tell(box=d.box)
        while True:
            d.ops(c, 500)
    """)
    path = child.told()["box"]
    eventually(lambda: read_box(path).header["drained_seq"] > 5000)
    child.kill()
    box, stream = read_box(path), stage.stream()
    assert stream.n_torn <= 1
    assert box.header["drained_seq"] <= stream.records["seq"][-1] <= box.header["ring_head"]
    assert box.header["ring_head"] - box.ring["seq"][-1] <= 1  # one op may have had its number only
    both = np.union1d(stream.ops["op_seq"], box.ring["op_seq"])
    assert len(both) + box.losses[1].sum() >= both[-1] - 1


def test_nothing_exists_before_the_first_communicator(stage):
    told = stage.run(
        "tell(inert=d.inert, box=d.box, closed=d.close(), flushed=d.flush(), end=d.end(5))"
    )
    assert told == {
        "inert": "no communicator yet",
        "box": "",
        "closed": 0,
        "flushed": 0,
        "end": 0,
        "stderr": "",
    }
    assert not stage.box_dir.exists()
    assert stage.sessions() == []


def test_full_shared_memory_means_the_fallback_directory(stage, small_disk, tmp_path):
    full = small_disk("shm", 1 << 20)
    told = stage.run(
        RECORDING,
        COMMINSIGHT_BOX_DIR=str(full / "x"),
        COMMINSIGHT_BOX_FALLBACK=str(tmp_path / "back"),
    )
    assert told["box"].startswith(str(tmp_path / "back"))
    assert "No space left" in told["stderr"]
    assert list((full / "x").iterdir()) == []
    ring = read_box(told["box"]).ring
    assert ring["op_seq"][is_ended_op(ring)].tolist() == [1, 2, 3, 4, 5]


def test_no_place_at_all_means_inert_and_one_line(stage, small_disk):
    full = small_disk("shm", 1 << 20)
    env = {"COMMINSIGHT_BOX_DIR": str(full), "COMMINSIGHT_BOX_FALLBACK": str(full / "y")}
    told = stage.run(
        "c = d.register(); c2 = d.register(); tell(c=c, c2=c2, ops=d.ops(c, 3), inert=d.inert)",
        **env,
    )
    assert (told["c"], told["c2"], told["ops"]) == (0, 0, 0)
    assert told["inert"].startswith("no black box: ")
    assert told["stderr"] == f"comminsight: nothing is recorded: {told['inert']}\n"


def make_symlink(path):
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(path.parent / "elsewhere")


def make_writable_for_all(path):
    path.mkdir()
    path.chmod(0o777)


def make_foreign(path):
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("prepare", [make_symlink, make_writable_for_all, make_foreign])
def test_box_directory_that_is_not_ours_is_refused(stage, prepare, tmp_path):
    prepare(stage.box_dir)
    told = stage.run(RECORDING, COMMINSIGHT_BOX_FALLBACK=str(tmp_path / "back"))
    assert told["box"].startswith(str(tmp_path / "back"))
    assert list(stage.box_dir.iterdir()) == []


def test_kill_switches(stage, tmp_path):
    script = "c = d.register(); tell(c=c, box=d.box, inert=d.inert)"
    told = stage.run(script, COMMINSIGHT_DISABLE="1")
    assert told == {"c": 0, "box": "", "inert": "disabled by COMMINSIGHT_DISABLE", "stderr": ""}
    (tmp_path / "disable").touch()
    assert stage.run(script)["inert"] == f"disabled by file {tmp_path / 'disable'}"
    assert not stage.box_dir.exists()


def test_kill_switch_file_stops_a_running_process(stage, tmp_path):
    child = stage.start(
        "c = d.register(); tell(box=d.box); wait(); tell(ops=d.ops(c, 3), stats=d.stats())"
    )
    path = child.told()["box"]
    (tmp_path / "disable").touch()
    eventually(lambda: read_box(path).header["active_enabled"] == 0)
    child.go()
    told = child.told()
    assert (told["ops"], told["stats"]["by_reason"][7]) == (0, 3)
    child.finish()


def test_exec_starts_a_second_life_beside_the_first(stage):
    again = (
        "from tests.unit.native.door import *; d = Door(); c = d.register(); d.ops(c, 2); d.close()"
    )
    told = stage.run(f"""
        c = d.register()
        d.ops(c, 5)
        d.flush()
        tell(box=d.box)
        os.execv(sys.executable, [sys.executable, "-S", "-c", {again!r}])
    """)
    first, second = stage.sessions()
    assert second.name == f"{first.name}.2"
    assert len(read_session(first).of(1)) == 5
    assert len(read_session(second).of(1)) == 2
    old, new = sorted(stage.box_dir.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    assert (str(old), read_box(old).header["state"], read_box(new).header["state"]) == (
        told["box"],
        1,
        2,
    )
