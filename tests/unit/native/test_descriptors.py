"""The application may close descriptors it does not know: the numbers are its own from then on."""

from __future__ import annotations

import os

import pytest

from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box
from tests.unit.native.test_box import lock_holder

# The files that get our numbers back, after `os.closerange`.
TAKE_ALL = """
os.closerange(3, 64)
files = [open(os.path.join(os.environ["OWN"], f"own{i}"), "wb", buffering=0) for i in range(12)]
"""
# The numbers under which the line door is open.
HELD = """
def held():
    fifo = os.environ["COMMINSIGHT_FIFO"]
    paths = [f"/proc/self/fd/{n}" for n in range(3, 64)]
    return [p for p in paths if os.path.exists(p) and os.readlink(p) == fifo]
"""
STILL_OPEN = "[os.fstat(f.fileno()).st_ino for f in files] == inodes"


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own"
    path.mkdir()
    yield path
    assert [p.stat().st_size for p in path.iterdir()] == [0] * 12


def test_fork_closes_no_file_of_the_application(stage, own):
    told = stage.run(
        f"""
c = d.register()
d.ops(c, 10)
d.flush()
{TAKE_ALL}
inodes = [os.fstat(f.fileno()).st_ino for f in files]
pid = os.fork()
if pid == 0:
    try:
        os._exit(0 if {STILL_OPEN} else 1)
    except OSError:
        os._exit(2)
tell(child=os.waitpid(pid, 0)[1], kept={STILL_OPEN}, closed=d.close())
""",
        OWN=str(own),
    )
    assert (told["child"], told["kept"], told["closed"]) == (0, True, 0)


def test_close_and_rotation_close_no_file_of_the_application(stage, own):
    told = stage.run(
        f"""
c = d.register()
d.ops(c, 5000)
d.flush()
{TAKE_ALL}
inodes = [os.fstat(f.fileno()).st_ino for f in files]
for _ in range(10):
    d.ops(c, 1000)
    d.flush()
    time.sleep(0.05)
closed = d.close()
tell(kept={STILL_OPEN}, closed=closed, box=d.box)
""",
        OWN=str(own),
        COMMINSIGHT_SEGMENT_MB="1",
    )
    assert (told["kept"], told["closed"]) == (True, 0)
    assert len(stage.stream().of(1)) == 15_000


def test_lock_that_says_alive_comes_back(stage):
    child = stage.start("""
        c = d.register()
        d.flush()
        os.closerange(3, 64)
        tell(box=d.box)
        wait()
        with open(d.box, "rb"):
            pass  # any close of the file in this process takes the lock away too
        tell(closed_again=True)
        wait()
    """)
    path = child.told()["box"]
    eventually(lambda: lock_holder(path) == child.process.pid)
    child.go()
    child.told()
    eventually(lambda: lock_holder(path) == child.process.pid)
    child.kill()
    assert lock_holder(path) == 0


def test_line_door_writes_into_no_file_of_the_application(stage, own, tmp_path):
    fifo = tmp_path / "fifo"
    child = stage.start(
        f"""
c = d.register()
os.mkfifo({str(fifo)!r})
tell(made=True)
wait()
{HELD}
while not held():
    d.ops(c, 10)
    d.flush()
    time.sleep(0.05)
{TAKE_ALL}
d.ops(c, 100)
d.flush()
time.sleep(0.2)
tell(flushed=d.flush(), closed=d.close())
""",
        COMMINSIGHT_FIFO=str(fifo),
        OWN=str(own),
    )
    child.told()
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        child.go()
        assert child.told() == {"flushed": 0, "closed": 0}
    finally:
        os.close(reader)
    child.finish()


def test_forked_child_does_not_keep_the_line_door_open(stage, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        told = stage.run(
            f"""
c = d.register()
d.ops(c, 10)
d.flush()
{HELD}
mine = len(held())
pid = os.fork()
if pid == 0:
    os._exit(len(held()))
tell(mine=mine, inherited=os.waitpid(pid, 0)[1], box=d.box, closed=d.close())
""",
            COMMINSIGHT_FIFO=str(fifo),
        )
    finally:
        os.close(reader)
    assert (told["mine"], told["inherited"]) == (1, 0)
    assert read_box(told["box"]).header["state"] == 2
