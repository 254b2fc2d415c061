"""Disks that are full, foreign or taken away: producers never notice, losses are counted."""

from __future__ import annotations

import subprocess

from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box, read_session

NFS = "0x6969"


def test_network_file_system_is_refused_and_said(stage):
    told = stage.run(
        """
        c = d.register()
        tell(ops=d.ops(c, 20_000), flushed=d.flush(), segment=d.segment, box=d.box, stats=d.stats())
        tell(closed=d.close())
        """,
        COMMINSIGHT_SPOOL_FS_MAGIC=NFS,
    )
    assert (told["ops"], told["flushed"], told["segment"]) == (20_000, 0, "")
    assert "network file system (nfs)" in told["stderr"]
    assert not stage.spool.exists()
    box = read_box(told["box"])
    assert (
        box.ring["op_seq"][-1] == 20_000 or box.ring["kind"][-1] == 4
    )  # the newest are there to read
    assert (box.header["state"], box.header["drained_seq"]) == (2, 0)
    assert box.losses.sum() == 0


def test_network_file_system_can_be_allowed(stage):
    stage.run(
        "c = d.register(); d.ops(c, 3); tell(closed=d.close())",
        COMMINSIGHT_SPOOL_FS_MAGIC=NFS, COMMINSIGHT_ALLOW_NETWORK_SPOOL="1",
    )  # fmt: skip
    assert len(stage.stream().of(1)) == 3


def test_full_disk_is_counted_and_leaves_whole_frames(stage, small_disk):
    spool = small_disk("disk", 512 << 10)
    child = stage.start(
        """
        c = d.register()
        done = sum(d.ops(c, 1000) for _ in range(20) if time.sleep(0.02) is None)
        tell(done=done, flushed=d.flush(), box=d.box)
        wait()
        done += d.ops(c, 10)
        tell(done=done, flushed=d.flush())
        d.close()
        """,
        COMMINSIGHT_SPOOL=str(spool),
        COMMINSIGHT_SEGMENT_MB="1",
    )
    told = child.told()
    assert (told["done"], told["flushed"]) == (20_000, -28)  # ENOSPC; the caller was never held up
    assert read_box(told["box"]).header["segment_errno"] == 28
    (session,) = spool.iterdir()
    assert 0 < len(read_session(session).of(1)) < 20_000  # reads without a torn frame
    subprocess.run(["mount", "-o", "remount,size=64m", str(spool)], check=True)
    eventually(lambda: read_box(told["box"]).header["segment_errno"] == 0)
    child.go()
    told = child.told()
    errors = child.finish()
    assert (told["done"], told["flushed"]) == (20_010, 0)
    stream = read_session(session)
    lost = int(stream.losses[1][9])
    assert lost > 0
    assert len(stream.of(1)) + lost == 20_010
    assert errors.count("\n") == 2  # once gone, once back


def test_spool_that_cannot_be_made_is_retried(stage):
    stage.spool.write_text("in the way")
    child = stage.start("""
        c = d.register()
        tell(ops=d.ops(c, 100), flushed=d.flush(), box=d.box)
        wait()
        tell(flushed=d.flush(), closed=d.close())
    """)
    told = child.told()
    assert (told["ops"], told["flushed"]) == (100, -20)  # ENOTDIR
    stage.spool.unlink()
    eventually(lambda: read_box(told["box"]).header["segment_errno"] == 0)
    child.go()
    assert child.told() == {"flushed": 0, "closed": 0}
    child.finish()
    assert len(stage.stream().of(1)) == 100  # they had waited in the ring


def test_application_that_closes_all_descriptors_keeps_its_own_files(stage, tmp_path):
    told = stage.run(f"""
        c = d.register()
        d.ops(c, 10)
        d.flush()
        os.closerange(3, 64)
        files = [open({str(tmp_path)!r} + f"/own{{i}}", "wb") for i in range(8)]
        d.ops(c, 10)
        first = d.flush()
        time.sleep(0.3)
        tell(first=first, second=d.flush(), closed=d.close())
    """)
    assert [path.stat().st_size for path in sorted(tmp_path.glob("own*"))] == [0] * 8
    assert (told["first"] in (-9, 0), told["second"], told["closed"]) == (True, 0, 0)
    assert len(stage.stream().of(1)) == 20


def test_removed_spool_comes_back_with_the_next_segment(stage):
    told = stage.run(
        """
        import shutil
        c = d.register()
        d.ops(c, 100)
        d.flush()
        shutil.rmtree(os.environ["COMMINSIGHT_SPOOL"])
        for _ in range(20):
            d.ops(c, 1000)
            d.flush()
        time.sleep(0.3)
        tell(flushed=d.flush(), closed=d.close())
        """,
        COMMINSIGHT_SEGMENT_MB="1",
    )
    assert (told["flushed"], told["closed"]) == (0, 0)
    assert stage.stream().ops["op_seq"][-1] == 20_100
