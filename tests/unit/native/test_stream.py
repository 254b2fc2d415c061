"""From calls to segments: content, sequences, rows, losses, rotation, identity."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.unit.native.conftest import eventually
from tests.unit.native.reading import read_box


def test_every_op_is_in_the_segment_in_arrival_order(stage):
    told = stage.run("""
        c = d.register(2**64 - 1, rank=3, size=8, members=b"0-7", desc=b"tp \\xc3\\xa9")
        tell(recorded=d.ops(c, 1500, size_bytes=400), flushed=d.flush())
        tell(box=d.box, segment=d.segment)
        tell(closed=(d.close(), d.close()), after=d.ops(c, 1), inert=d.inert)
    """)
    stream = stage.stream()
    assert (told["recorded"], told["flushed"], told["closed"]) == (1500, 0, [0, 0])
    assert (told["after"], told["inert"]) == (0, "closed")
    assert told["segment"] == f"{stream.files[0]}.open"
    assert stream.ops["seq"].tolist() == stream.ops["op_seq"].tolist() == list(range(1, 1501))
    assert (stream.ops["match_seq"] == stream.ops["op_seq"]).all()
    first = stream.ops[0]
    assert (first["count"], first["size_bytes"], first["state"], first["dtype"]) == (100, 400, 3, 9)
    assert 0 < first["start_ns"] <= first["end_ns"]
    (row,) = stream.comms
    assert (row["comm_hash"], row["comm_rank"], row["comm_size"]) == (2**64 - 1, 3, 8)
    assert (row["members"], row["desc"].decode()) == (b"0-7", "tp é")
    assert 0 < row["created_ns"] <= row["first_op_ns"] == first["start_ns"]
    assert stream.records[-1]["kind"] == 4  # the stream says that nothing earlier is to come
    assert read_box(told["box"]).header["state"] == 2


def test_p2p_matches_by_peer_and_direction_and_filtered_ops_keep_their_numbers(stage):
    stage.run(
        """
        c = d.register()
        for op, peer in ((SEND, 1), (RECV, 1), (SEND, 2), (SEND, 1)):
            d.ops(c, 1, kind=P2P, op=op, peer=peer)
        d.ops(c, 2, size_bytes=10)
        d.ops(c, 1)
        tell(stats=d.stats(), closed=d.close())
        """,
        COMMINSIGHT_MIN_SIZE_BYTES="100",
    )
    stream = stage.stream()
    assert stream.ops["op_seq"].tolist() == [1, 2, 3, 4, 7]
    assert stream.ops["match_seq"].tolist() == [1, 1, 1, 2, 3]
    assert stream.losses[1].tolist()[:8] == [0, 0, 0, 0, 0, 0, 2, 0]


def test_identity_names_the_process_and_holds_no_secret(stage):
    told = stage.run(
        """
        d.lib.ci_identity(b"versions.torch", b'2.13 "x"')
        c = d.register()
        d.flush()
        d.lib.ci_identity(b"identity.global_rank", b"7")
        d.lib.ci_identity(b"nonsense", b"7")
        d.flush()
        tell(box=d.box, pid=os.getpid(), closed=d.close())
        """,
        TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT="2", SLURM_PROCID="4", WORLD_SIZE="8",
        NCCL_DEBUG="IN\nFO", COMMINSIGHT_AUTH="hush", NCCL_API_KEY="hush",
        COMMINSIGHT_STORE="s3://user:hush@host", HOME="/hush",
    )  # fmt: skip
    first, last = stage.stream().identities
    identity = first["identity"]
    assert identity["run_id"] == "job.2"
    assert (identity["global_rank"], identity["local_rank"], identity["world_size"]) == (4, -1, 8)
    assert identity["pid"] == told["pid"]
    session = f"{identity['boot_id'][:8]}-{identity['pid']}-{identity['pid_start_ticks']}"
    assert stage.sessions()[0].name == identity["session_id"] == session
    assert first["versions"]["torch"] == '2.13 "x"'
    assert first["environment"]["NCCL_DEBUG"] == "IN?FO"
    assert "hush" not in str(first)
    assert last["identity"]["global_rank"] == 7
    assert read_box(told["box"]).identity == last


@pytest.mark.parametrize(
    ("variables", "run_id"),
    [
        ({"COMMINSIGHT_RUN_ID": "mine", "SLURM_JOB_ID": "12"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "12"}, "12"),
        ({}, ""),
    ],
)
def test_run_id_takes_the_best_source(stage, variables, run_id):
    stage.run("d.register(); tell(closed=d.close())", **variables)
    assert stage.stream().identities[0]["identity"]["run_id"] == run_id


def test_segments_rotate_repeat_the_rows_and_respect_the_cap(stage):
    told = stage.run(
        """
        a, b = d.register(1), d.register(2)
        done = 0
        for _ in range(40):
            done += d.ops(a, 1000) + d.ops(b, 100)
            d.flush()
        tell(done=done, stats=d.stats(), closed=d.close(), after=d.stats())
        """,
        COMMINSIGHT_SEGMENT_MB="1",
        COMMINSIGHT_SPOOL_CAP_MB="3",
    )
    stream = stage.stream()
    assert told["done"] == 44_000
    assert sum(path.stat().st_size for path in stream.files) <= 3 << 20
    assert int(stream.files[0].name[:6]) > 1
    assert len(stream.identities) == len(stream.files) > 1  # each can be read alone
    kept = [len(stream.of(comm)) for comm in (1, 2)]
    removed = [int(stream.losses[comm][10]) for comm in (1, 2)]
    assert [k + r for k, r in zip(kept, removed, strict=True)] == [40_000, 4_000]
    assert stream.ops["seq"][0] == sum(removed) + 1


def test_retired_communicator_ends_its_ops_as_aborted(stage):
    told = stage.run("""
        a, b = d.register(1), d.register(2)
        mine, other = d.begin(a), d.begin(b)
        d.lib.ci_comm_retire(a)
        tell(late=d.end(mine), other=d.end(other))
        d.flush()
        tell(stats=d.stats(), closed=d.close())
    """)
    stream = stage.stream()
    assert stream.of(1, state=5)["op_seq"].tolist() == [1]
    assert stream.comms["retired_ns"][0] > 0 == stream.comms["retired_ns"][1]
    assert (told["late"], told["other"]) == (0, 1)
    assert stream.losses[1][5] == 1  # STALE_HANDLE


def test_strange_calls_are_counted_and_harmless(stage):
    told = stage.run("""
        c = d.register(members=b"0," * 200, name=b"n" * 200)
        tell(no_row=d.begin(0), foreign=d.begin(9), zero=d.end(0), forged=d.end(2**64 - 1))
        h = d.begin(c)
        tell(twice=[d.end(h), d.end(h)])
        d.lib.ci_loss(c, 12, 5)
        d.lib.ci_loss(77, 200, 1)
        unseen = d.begin(c)
        d.end(unseen, UNOBSERVABLE)
        tell(stats=d.stats(), closed=d.close())
    """)
    assert (told["no_row"], told["foreign"], told["zero"], told["forged"]) == (0, 0, 0, 0)
    assert told["twice"] == [1, 0]
    stream = stage.stream()
    assert stream.losses[0].tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert stream.losses[1][[5, 12]].tolist() == [1, 5]
    (row,) = stream.comms
    assert (row["members"], row["flags"], len(row["name"])) == (b"", 1, 63)
    (unseen,) = stream.of(1, state=6)
    assert (unseen["end_ns"], unseen["flags"] & 64) == (0, 64)


def test_communicator_table_is_bounded(stage):
    told = stage.run("""
        rows = [d.register(comm_hash=i % 2) for i in range(600)]
        tell(rows=rows, last=d.ops(512, 3), lost=d.ops(rows[-1], 3), closed=d.close())
    """)
    assert told["rows"] == [*range(1, 513), *[0] * 88]
    stream = stage.stream()
    assert len(stream.comms) == 512
    assert stream.comms["ordinal"].tolist() == [i // 2 for i in range(512)]
    assert (told["last"], told["lost"]) == (3, 0)
    assert stream.losses[0][8] == 3


def test_fifo_door_gives_lines_and_counts_what_it_drops(stage, tmp_path):
    fifo = tmp_path / "fifo"
    child = stage.start(
        f"""
        os.mkfifo({str(fifo)!r})
        tell(made=True)
        wait()
        c = d.register()
        for _ in range(20):
            d.ops(c, 200)
            d.flush()
        tell(stats=d.stats())
        d.close()
        """,
        COMMINSIGHT_FIFO=str(fifo),
    )
    child.told()
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
        child.go()
        stats = child.told()["stats"]
        lines = pipe.read(1 << 20).splitlines()
    child.finish()
    assert b'"op_seq":1,' in lines[0]
    dropped = stats["by_reason"][11]
    assert dropped > 0  # nobody read while 4000 lines were offered to a pipe of 64 KiB
    assert len(lines) + dropped == 4000
    assert len(stage.stream().ops) == 4000


def test_control_words_are_clamped_applied_and_said(stage):
    child = stage.start("""
        c = d.register()
        d.ops(c, 1)
        tell(box=d.box)
        wait()
        d.ops(c, 5)
        tell(closed=d.close())
    """)
    path = child.told()["box"]
    write_control(path, generation=1, enabled=1, mask=1 << 9, min_size=-5, overdue=1, safe=10**18)
    eventually(lambda: read_box(path).header["active_generation"] == 1)
    header = read_box(path).header
    assert header["active_min_size_bytes"] == 0
    assert header["active_overdue_limit_ns"] == 50_000_000
    assert header["active_safe_window_ns"] == 600 * 10**9
    child.go()
    child.told()
    child.finish()
    stream = stage.stream()
    (notice,) = stream.records[stream.records["kind"] == 5]
    assert (notice["count"], notice["size_bytes"], notice["user_tag"]) == (1 << 9, 0, 1)
    assert len(stream.of(1)) == 1
    assert stream.losses[1][7] == 5  # MASKED
    assert stream.identities[-1]["settings"]["safe_window_ns"] == 600 * 10**9


def write_control(path, *, generation, enabled, mask, min_size, overdue, safe):
    words = (
        np.array([enabled, mask, 0], "<u4").tobytes()
        + np.array([min_size, overdue, safe], "<i8").tobytes()
    )
    with open(path, "r+b", buffering=0) as box:
        box.seek(516)
        box.write(words)
        box.seek(512)
        box.write(np.array([generation], "<u4").tobytes())


def test_idle_recorder_looks_at_no_slot(stage):
    told = stage.run("""
        c = d.register()
        d.ops(c, 10)
        d.flush()
        before = d.stats()
        time.sleep(0.3)
        after = d.stats()
        tell(before=before, after=after, closed=d.close())
    """)
    assert told["after"]["drain_ticks"] > told["before"]["drain_ticks"]
    assert told["after"]["slot_scans"] == told["before"]["slot_scans"]


def test_a_burst_between_two_flushes_is_not_lost(stage):
    told = stage.run(
        """
        c = d.register()
        d.flush()
        time.sleep(0.1)  # the drain thread goes to sleep for ten seconds
        done = 0
        for _ in range(6):
            done += d.ops(c, 5000)  # more than half the ring
            while (s := d.stats())["records_pushed"] - s["drained_seq"] > 2048:
                time.sleep(0.001)
        tell(done=done, stats=d.stats(), closed=d.close())
        """,
        COMMINSIGHT_FLUSH_MS="10000",  # only the producer's call brings the drain thread
    )
    assert told["done"] == 30_000
    assert 0 < told["stats"]["producer_wakes"] < 300
    assert len(stage.stream().ops) == 30_000
