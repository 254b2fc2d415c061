from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from comminsight.capture.box import read_box
from comminsight.capture.process import boot_id, start_ticks
from comminsight.errors import FormatError, InputError
from comminsight.format.layout import BOX_CLOSED, BOX_RING_OFFSET, RING_CAPACITY
from comminsight.model.hang import Liveness
from comminsight.model.topology import SessionIdentity
from tests.builders import allreduce, box_bytes, identity, ops

HOLDER = """
import fcntl, struct, sys
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 1, 0))
print("locked", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def owner_of(pid: int) -> SessionIdentity:
    return identity(pid=pid, pid_start_ticks=start_ticks(pid), boot_id=boot_id())


def test_the_lock_tells_life_and_pid_and_death(tmp_path: Path) -> None:
    """The pid in the header is one of another namespace: only the lock knows better."""
    path = tmp_path / "1-1-1.box"
    path.write_bytes(box_bytes(ops(allreduce(1, 1.0)), who=identity(pid=1, boot_id=boot_id())))
    with start_holder(path) as holder:
        alive = read_box(path)
        holder.kill()
    dead = read_box(path)
    assert (alive.liveness, alive.pid) == (Liveness.ALIVE, holder.pid)
    assert (dead.liveness, dead.pid) == (Liveness.DEAD, -1)
    assert np.array_equal(alive.data.ring, dead.data.ring)


def test_a_closed_box_is_closed_whoever_lives(tmp_path: Path) -> None:
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops(), state=BOX_CLOSED, who=owner_of(os.getpid())))
    assert read_box(path).liveness is Liveness.CLOSED


def test_without_lock_the_process_table_decides(tmp_path: Path) -> None:
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops(), who=owner_of(os.getppid())))
    assert read_box(path).liveness is Liveness.ALIVE
    reused_pid = identity(pid=os.getppid(), pid_start_ticks=1, boot_id=boot_id())
    path.write_bytes(box_bytes(ops(), who=reused_pid))
    assert read_box(path).liveness is Liveness.DEAD


def test_a_box_of_another_boot_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops(), who=identity(boot_id="other", pid=os.getpid())))
    assert read_box(path).liveness is Liveness.UNKNOWN


def test_what_is_no_box_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "garbage.box").write_bytes(b"\0" * 9000)
    (tmp_path / "short.box").write_bytes(box_bytes(ops())[:100_000])
    (tmp_path / "whole.box").write_bytes(box_bytes(ops()))
    (tmp_path / "link.box").symlink_to(tmp_path / "whole.box")
    os.mkfifo(tmp_path / "pipe.box")
    with (tmp_path / "huge.box").open("wb") as file:
        file.truncate(1 << 40)
    kinds = {"garbage": FormatError, "short": FormatError}
    for name in ("garbage", "short", "link", "pipe", "huge", "absent"):
        with pytest.raises(kinds.get(name, InputError), match=f"{name}.box"):
            read_box(tmp_path / f"{name}.box")


def test_a_box_closed_to_us_is_an_input_error_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops()))
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read every file
    try:
        with pytest.raises(InputError, match="Permission denied") as caught:
            read_box(path)
    finally:
        os.seteuid(user)
    assert "as root" in caught.value.next_step


def test_records_read_while_a_writer_overwrites_the_ring_are_never_mixed(tmp_path: Path) -> None:
    """Every record of generation g has all its words equal to a function of its seq."""
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops()))
    stop = threading.Event()
    writer = threading.Thread(target=overwrite_ring, args=(path, stop))
    writer.start()
    try:
        readings = [read_box(path).data for _ in range(15)]
    finally:
        stop.set()
        writer.join()
    assert sum(len(box.ring) for box in readings) > 0
    for box in readings:
        seq = box.ring["seq"]
        assert (np.diff(seq) > 0).all()
        for field in ("start_ns", "end_ns", "size_bytes", "user_tag"):
            assert (box.ring[field] == seq * 7).all()


def overwrite_ring(path: Path, stop: threading.Event) -> None:
    """Writes records as the recorder does: word 0 away, the body in two halves, word 0."""
    descriptor = os.open(path, os.O_WRONLY)
    seq = 0
    row = allreduce(1, 1.0)
    while not stop.is_set():
        seq += 1
        row["seq"] = row["seq_low"] = seq
        for field in ("start_ns", "end_ns", "size_bytes", "user_tag"):
            row[field] = seq * 7
        data, at = row.tobytes(), BOX_RING_OFFSET + (seq - 1) % RING_CAPACITY * 128
        os.pwrite(descriptor, seq.to_bytes(8, "little"), 256)
        os.pwrite(descriptor, b"\xff" * 8, at)
        os.pwrite(descriptor, data[8:40], at + 8)
        os.pwrite(descriptor, data[40:], at + 40)
        os.pwrite(descriptor, data[:8], at)
    os.close(descriptor)


def test_a_foreign_lock_does_not_hide_the_box(tmp_path: Path) -> None:
    path = tmp_path / "a.box"
    path.write_bytes(box_bytes(ops(allreduce(1, 1.0))))
    with path.open("rb") as mine:
        fcntl.lockf(mine, fcntl.LOCK_SH)
        assert len(read_box(path).data.ring) == 1
