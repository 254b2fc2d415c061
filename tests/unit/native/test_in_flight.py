"""Ops that take long or never end: markers, late ends, slots that come back, who pays."""

from __future__ import annotations

import numpy as np

from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box

QUICK = {"COMMINSIGHT_SAFE_WINDOW_MS": "200", "COMMINSIGHT_OVERDUE_S": "0.4"}


def test_long_op_is_marked_open_then_overdue_then_done(stage):
    child = stage.start(
        """
        c = d.register()
        quick, slow = d.begin(c), d.begin(c, BARRIER)
        d.end(quick)
        d.lib.ci_op_launched(slow)
        tell(box=d.box)
        wait()
        tell(late=d.end(slow), stats=d.stats())
        d.close()
        """,
        **QUICK,
    )
    path = child.told()["box"]
    eventually(lambda: read_box(path).header["overdue_slots"] == 1)
    (slot,) = read_box(path).in_flight
    assert (slot["state_word"] & 255, slot["record"]["op"], slot["record"]["state"]) == (3, 9, 2)
    assert 0 < slot["launch_ns"] < slot["marker_ns"] < slot["overdue_ns"]
    child.go()
    assert child.told()["late"] == 1
    child.finish()
    assert read_box(path).header["overdue_slots"] == 0
    rows = stage.stream().ops
    assert rows["op_seq"].tolist() == [1, 2, 2, 2]
    assert rows["state"].tolist() == [3, 1, 2, 3]
    assert rows["flags"].tolist() == [0, 0, 4, 4 | 8]
    assert len(set(rows["start_ns"][1:].tolist())) == len(set(rows["match_seq"][1:].tolist())) == 1
    assert (rows["end_ns"][1:3] == 0).all()
    assert rows["end_ns"][3] - rows["start_ns"][3] >= 400_000_000
    assert slot["marker_ns"] - rows["start_ns"][1] >= 100_000_000


def test_slot_names_the_thread_that_entered(stage):
    told = stage.run("""
        import threading
        c = d.register()
        def enter():
            d.begin(c)
            tell(tid=threading.get_native_id())
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        tell(box=d.box)
    """)
    assert read_box(told["box"]).in_flight["owner_tid"].tolist() == [told["tid"]]


def test_op_open_at_close_stays_decidable(stage):
    stage.run("c = d.register(); d.begin(c); tell(closed=d.close())")
    rows = stage.stream().records
    assert rows["state"].tolist() == [1, 3]  # OPEN, then the end of the stream
    assert rows["kind"].tolist() == [1, 4]


def test_a_million_ops_without_end_leak_no_slot(stage):
    told = stage.run(
        """
        c = d.register()
        old = d.begin(c)
        for _ in range(500_000):
            d.begin(c)
        time.sleep(0.3)
        for _ in range(500_000):
            d.begin(c)
        time.sleep(0.3)
        d.flush()
        stats = d.stats()
        late = d.end(old)
        fresh = d.ops(c, 10)
        tell(stats=stats, late=late, fresh=fresh, after=d.stats(), box=d.box, closed=d.close())
        """,
        COMMINSIGHT_OVERDUE_S="0.05",
    )
    stats = told["stats"]
    assert stats["ops_begun"] == 1_000_001
    assert stats["ops_in_flight"] <= 4096 // 2
    assert stats["slots_recycled"] > 2000
    assert (told["late"], told["fresh"]) == (0, 10)
    assert told["after"]["by_reason"][5] == 1  # STALE_HANDLE
    stream = stage.stream()
    overdue = stream.of(1, state=2)
    assert len(overdue) + stats["by_reason"][2] + stats["by_reason"][1] == 1_000_001
    assert overdue["op_seq"][0] == 1
    assert len(overdue) == stats["slots_recycled"] + stats["ops_in_flight"]


def test_flood_of_one_communicator_costs_the_other_nothing(stage):
    told = stage.run(
        """
        import threading
        anchor, flood = d.register(1), d.register(2)
        hang = d.begin(anchor, BARRIER)
        stop = False
        def drown():
            while not stop:
                d.ops(flood, 50)
                d.begin(flood)
        threads = [threading.Thread(target=drown) for _ in range(3)]
        for t in threads: t.start()
        done = 0
        for _ in range(100):
            done += d.ops(anchor, 5)
            time.sleep(0.005)
        stop = True
        for t in threads: t.join()
        tell(done=done, flushed=d.flush(), begun=d.stats()["ops_begun"])
        tell(late=d.end(hang), closed=d.close())
        """,
        COMMINSIGHT_OVERDUE_S="0.1",
    )
    stream = stage.stream()
    assert (told["done"], told["late"]) == (500, 1)  # also its overdue op was kept
    assert len(stream.of(1)) == 501
    assert stream.losses[1].sum() == 0
    seen = stream.ops["op_seq"][stream.ops["comm_index"] == 2]
    assert len(np.unique(seen)) + stream.losses[2].sum() == told["begun"] - 501


def test_peer_table_is_bounded_and_says_so(stage):
    told = stage.run("""
        c = d.register(size=4096)
        for _ in range(2):
            for peer in range(2000):
                d.ops(c, 1, kind=P2P, op=SEND, peer=peer)
        tell(stats=d.stats(), closed=d.close())
    """)
    ops = stage.stream().ops
    unplaced = told["stats"]["peers_unplaced"]
    assert unplaced == (ops["match_seq"] == 0).sum() >= 2 * (2000 - 1024)
    by_peer = {int(p): ops["match_seq"][ops["peer_or_root"] == p].tolist() for p in range(2000)}
    assert all(
        numbers in ([0, 0], [1, 2]) for numbers in by_peer.values()
    )  # all or nothing, never wrong
