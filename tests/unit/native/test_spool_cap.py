"""The cap on a session's segments: what goes is counted once, what cannot go harms nobody."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest

from comminsight.format import layout
from comminsight.model.event import OP_DTYPE
from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box, read_session

# A segment of 1 MiB holds less than 8192 records; beside the open one the cap leaves room for two.
SMALL = {"COMMINSIGHT_SEGMENT_MB": "1", "COMMINSIGHT_SPOOL_CAP_MB": "3"}
RECORD = """
def record(n):
    done = 0
    for _ in range(n // 1000):
        done += d.ops(c, 1000)
        assert d.flush() != -110, "the drain thread does not turn"
    return done
c = d.register()
"""
TWO_LIVES = f"""{RECORD}
tell(done=record(10_000), box=d.box)
wait()
tell(done=record(20_000), flushed=d.flush(), stats=d.stats())
wait()
tell(flushed=d.flush(), closed=d.close())
"""


def go(child):
    child.go()
    return child.told()


def ops_frames(path):
    """(offset, header) of every OPS frame of a segment."""
    data = path.read_bytes()
    at = int(np.frombuffer(data, layout.SEGMENT_HEADER_DTYPE, 1)[0]["header_bytes"])
    while at < len(data):
        frame = np.frombuffer(data, layout.FRAME_HEADER_DTYPE, 1, at)[0]
        if frame["type"] == layout.FRAME_OPS:
            yield at, frame
        at += layout.FRAME_HEADER_DTYPE.itemsize + int(frame["payload_bytes"])


def write_at(path, offset, value):
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        file.write(value)


def field_offset(name):
    return layout.FRAME_HEADER_DTYPE.fields[name][1]


@pytest.mark.parametrize("name", ["000900.ciseg", " 00001.ciseg", "+00001.ciseg", "-00001.ciseg"])
def test_what_only_looks_like_a_segment_is_left_alone(stage, name):
    child = stage.start(TWO_LIVES, **SMALL | {"COMMINSIGHT_SPOOL_CAP_MB": "1"})
    child.told()
    (session,) = stage.sessions()
    (session / name).mkdir()
    assert go(child)["flushed"] == 0
    assert go(child) == {"flushed": 0, "closed": 0}
    assert child.finish() == ""
    (session / name).rmdir()
    stream = stage.stream()
    assert len(stream.of(1)) + stream.losses[1][10] == 30_000


@pytest.fixture
def pinned():
    """Makes a file impossible to unlink, for root too: it is a mount point."""
    mounted = []

    def pin(path):
        command = ["mount", "--bind", str(path), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a bind mount needs root: {done.stderr.strip()}")
        mounted.append(path)

    def free():
        while mounted:
            subprocess.run(["umount", "-l", str(mounted.pop())], check=True)

    yield pin, free
    free()


def test_segment_that_cannot_be_removed_stops_the_writing_and_is_said_once(stage, pinned):
    pin, free = pinned
    child = stage.start(TWO_LIVES, **SMALL)
    told = child.told()
    (session,) = stage.sessions()
    pin(session / "000001.ciseg")
    second = go(child)
    assert second["flushed"] == -16  # EBUSY, and the drain thread still turns
    assert sum(path.stat().st_size for path in session.iterdir()) <= 3 << 20
    free()
    eventually(lambda: read_box(told["box"]).header["segment_errno"] == 0)
    assert go(child) == {"flushed": 0, "closed": 0}
    errors = child.finish()
    assert errors.count("cannot remove") == 1
    stream = stage.stream()
    lost = stream.losses[1]
    assert lost[9] > 0  # SEGMENT_WRITE
    assert len(stream.of(1)) + lost.sum() == told["done"] + second["done"]


def test_segment_that_cannot_be_opened_is_not_removed_uncounted(stage):
    """Its mode forbids reading it; root is stripped of the right to read it all the same."""
    child = stage.start(
        "libc = ctypes.CDLL(None)\n"
        "assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0\n"
        + TWO_LIVES,
        **SMALL,
    )
    told = child.told()
    (session,) = stage.sessions()
    unreadable = session / "000001.ciseg"
    unreadable.chmod(0)
    second = go(child)
    assert second["flushed"] == -13  # EACCES
    unreadable.chmod(0o600)
    eventually(lambda: read_box(told["box"]).header["segment_errno"] == 0)
    assert go(child) == {"flushed": 0, "closed": 0}
    child.finish()
    stream = stage.stream()
    assert len(stream.of(1)) + stream.losses[1].sum() == told["done"] + second["done"]


DAMAGES = {
    "n_items": (field_offset("n_items"), 2**32 - 1),
    "payload_bytes": (field_offset("payload_bytes"), 2**32 - 1),
    "magic": (field_offset("magic"), 0),
}


@pytest.mark.parametrize(("offset", "value"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_segment_is_removed_without_harm(stage, offset, value):
    child = stage.start(TWO_LIVES, **SMALL)
    child.told()
    (session,) = stage.sessions()
    first = session / "000001.ciseg"
    frames = list(ops_frames(first))
    at, frame = frames[2]
    write_at(first, at + offset, np.uint32(value).tobytes())
    whole = sum(int(f["n_items"]) for _, f in frames)
    before = sum(int(f["n_items"]) for _, f in frames[:2])
    assert go(child)["flushed"] == 0
    assert go(child) == {"flushed": 0, "closed": 0}
    child.finish()
    stream = stage.stream()
    missed = 30_000 - len(stream.of(1)) - int(stream.losses[1][10])
    if value == 0 or offset == field_offset("payload_bytes"):
        assert missed == whole - before  # what follows cannot be read ...
        assert stream.losses[0][10] == 1  # ... and is said
    else:
        assert missed == 0
        assert frame["payload_bytes"] == int(frame["n_items"]) * OP_DTYPE.itemsize


def test_overdue_op_that_ends_is_lost_once(stage):
    told = stage.run(
        f"""{RECORD}
slow = d.begin(c)
time.sleep(0.3)
done = record(20_000)
done += d.end(slow)
done += record(20_000)
tell(done=done, stats=d.stats(), closed=d.close())
""",
        COMMINSIGHT_SAFE_WINDOW_MS="100", COMMINSIGHT_OVERDUE_S="0.1", **SMALL,
    )  # fmt: skip
    stream = stage.stream()
    assert stream.losses[0].sum() == 0
    assert len(stream.of(1)) + stream.losses[1][10] == told["done"] == 40_001


def test_overdue_op_whose_marker_a_broken_disk_refused_is_lost_once(stage):
    stage.spool.write_text("in the way")
    child = stage.start(
        f"""{RECORD}
slow = d.begin(c)
time.sleep(0.3)
done = record(10_000) + d.end(slow)
done += record(10_000)
tell(box=d.box, done=done)
wait()
d.flush()
tell(stats=d.stats(), closed=d.close())
""",
        COMMINSIGHT_SAFE_WINDOW_MS="100", COMMINSIGHT_OVERDUE_S="0.1",
    )  # fmt: skip
    told = child.told()
    stage.spool.unlink()
    eventually(lambda: read_box(told["box"]).header["segment_errno"] == 0)
    stats = go(child)["stats"]
    child.finish()
    stream = stage.stream()
    assert stream.losses[1][9] > 4000
    assert len(stream.of(1)) + stream.losses.sum() == told["done"] == 20_001
    assert stats["markers_lost"] > 0


def test_segments_that_the_agent_takes_away_are_nobodys_loss(stage):
    child = stage.start(TWO_LIVES, **SMALL | {"COMMINSIGHT_SPOOL_CAP_MB": "2"})
    child.told()
    (session,) = stage.sessions()
    taken = session.with_name("taken")
    taken.mkdir()
    for path in session.glob("*.ciseg"):
        path.rename(taken / path.name)
    assert go(child)["flushed"] == 0
    assert go(child) == {"flushed": 0, "closed": 0}
    child.finish()
    numbers = itertools.chain(*(read_session(d).of(1)["op_seq"] for d in (taken, session)))
    assert len(list(numbers)) + read_session(session).losses[1][10] == 30_000
