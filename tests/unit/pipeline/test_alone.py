"""A run with nothing but the profiler plugin: a folder of black boxes, no names, no launcher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comminsight.format.layout import SLOT_OVERDUE
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import (
    Backend,
    EndReason,
    NoticeReason,
    Op,
    OpFlag,
    RecordKind,
    SlotFlag,
    TimingSource,
    WaitSide,
)
from comminsight.model.records import n_calls
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Cause
from comminsight.report.text import render_report
from comminsight.run import open_run
from tests.builders import (
    MS,
    InFlight,
    allreduce,
    box_bytes,
    comm_row,
    comm_rows,
    fold,
    identity,
    net_summary,
    notice,
    ops,
    send,
    unseen_end,
)

N_RANKS = 3
S_MS = 1000.0
F = SlotFlag
TASK = (
    F.NCCL | F.API_SEEN | F.API_RETURNED | F.GROUP_ENDED | F.LAUNCH_BEGUN | F.LAUNCH_RETURNED
    | F.TASK_SEEN | F.TASK_HANDED_OVER | F.GROUP_LEFT
)  # fmt: skip
RUNNING = {"slot_flags": int(TASK), "started_mask": 0b11, "launch_ns": 7}
HELD = {"slot_flags": int(TASK)}


def nccl_row(rank: int, size: int = N_RANKS) -> np.ndarray:
    row = comm_row(1, "0", comm_hash=0xABCDEF, backend=Backend.NCCL, device_number=rank + 1)
    row["comm_rank"], row["comm_size"], row["members"], row["abi_version"] = rank, size, b"", 5
    return row


def write_box(folder: Path, rank: int, ring: np.ndarray, *slots: InFlight, **header: int) -> None:
    who = identity(UNKNOWN_RANK, world_size=-1, pid=50 + rank, run_id="")
    header = {"heartbeat_mono_ns": round(99 * S_MS) * MS} | header
    data = box_bytes(ring, comm_rows(nccl_row(rank)), who, in_flight=slots, **header)
    (folder / f"{rank}.box").write_bytes(data)


def waiting(slot: dict[str, int], op_seq: int = 3, **fields: int) -> InFlight:
    """An all-reduce in flight since 10 s, overdue."""
    given = {"op_seq": op_seq, "match_seq": op_seq, "n_channels": 2} | fields
    return InFlight(allreduce(0, 10 * S_MS, **given), state=SLOT_OVERDUE, slot=slot)


def done(n: int) -> np.ndarray:
    return ops(*(allreduce(i, i * 1.0, timing_source=TimingSource.GPU) for i in range(1, n + 1)))


def test_a_rank_whose_kernel_does_not_begin_is_named(tmp_path: Path) -> None:
    for rank in range(N_RANKS):
        write_box(tmp_path, rank, done(2), waiting(HELD if rank == 1 else RUNNING))
    report = open_run(tmp_path).report()
    assert [(v.cause, v.culprits, v.victims) for v in report.verdicts] == [
        (Cause.KERNEL_NOT_STARTED, (1,), (0, 2))
    ]
    assert report.communicators[0].members == (0, 1, 2)
    assert (report.communicators[0].role, report.communicators[0].is_role_inferred) == (
        "GLOBAL", True,
    )  # fmt: skip
    assert [row.device for row in report.ranks] == ["0", "1", "2"]
    assert "note.ranks_inferred" in [note.code for note in report.notes]
    for lang in ("en", "zh"):
        text = render_report(report, lang=lang, width=100)
        assert "KERNEL_NOT_STARTED" in text
        assert "stage." not in text


def test_an_op_of_which_only_the_call_was_seen_is_entered_and_not_done(tmp_path: Path) -> None:
    unseen = unseen_end(allreduce(3, 10 * S_MS), EndReason.NO_TASK)
    for rank in (0, 1):
        write_box(tmp_path, rank, done(2), waiting(RUNNING))
    write_box(tmp_path, 2, ops(done(2), unseen))
    event = open_run(tmp_path).final_view()
    (stream,) = [p for p in event.progress if p.global_rank == 2]
    assert (stream.last_entered, stream.last_done) == (3, 2)
    (verdict,) = open_run(tmp_path).report().verdicts
    assert (verdict.cause, verdict.culprits, verdict.victims) == (
        Cause.ALL_PRESENT_STUCK, (), (0, 1),
    )  # fmt: skip


def test_what_the_slot_tells_is_in_the_op(tmp_path: Path) -> None:
    side = int(WaitSide.NETWORK) | int(WaitSide.ARRIVAL) << 8
    slot = RUNNING | {"wait_side": side, "net_posted_bytes": 5, "net_progress_ns": 9}
    write_box(tmp_path, 0, done(2), waiting(slot | {"started_mask": 1 << 63}, stream_id=6))
    (op,) = open_run(tmp_path).final_view().in_flight
    assert (op.started_mask, op.slot_flags, op.launch_ns, op.stream_id) == (1 << 63, TASK, 7, 6)
    assert (op.wait_side, op.net_posted_bytes, op.net_progress_ns) == (side, 5, 9)
    assert op.n_channels == 2


def pending(tmp_path: Path, size: int, words: dict[str, int]) -> InFlightOp:
    row = InFlight(
        fold(0, 10 * S_MS, 20, op_seq=1), state=SLOT_OVERDUE, slot={"slot_flags": int(TASK)} | words
    )
    who = identity(0, world_size=size)
    data = box_bytes(ops(), comm_rows(nccl_row(0, size)), who, in_flight=(row,))
    (tmp_path / "0.box").write_bytes(data)
    (op,) = open_run(tmp_path).final_view().in_flight
    return op


@pytest.mark.parametrize(
    ("size", "words", "peers", "span"),
    [
        (3, {"pending_peers_0": 0b110}, (1, 2), 1),
        (256, {"pending_peers_3": 1 << 63, "pending_peers_1": 1}, (64, 255), 1),
        (257, {"pending_peers_2": 1}, (256,), 2),
        (600, {"pending_peers_3": 1 << 63}, (), 3),  # beyond the last member
        (3, {}, (), 1),
    ],
)
def test_the_unfinished_peers_of_a_fan_out(
    tmp_path: Path, size: int, words: dict[str, int], peers: tuple[int, ...], span: int
) -> None:
    op = pending(tmp_path, size, words)
    assert (op.pending_peers, op.pending_span) == (peers, span)
    assert (op.n_folded, op.is_peerless) == (20, True)


def test_records_and_losses_account_for_every_call(tmp_path: Path) -> None:
    """A fan-out covers its calls; summaries and notices cover none."""
    ring = ops(
        allreduce(1, 1.0, op_seq=1), net_summary(allreduce(1, 1.0, op_seq=1), 2),
        fold(3, 2.0, 30, op_seq=2, match_seq=1), net_summary(fold(3, 2.0, 30, op_seq=2), 4),
        notice(5, 3.0, NoticeReason.COUNTERS, n_captured_calls=4),
        unseen_end(send(6, 4.0, op_seq=32), EndReason.NO_TASK), allreduce(7, 5.0, op_seq=36),
    )  # fmt: skip
    who = identity(0, world_size=1)
    data = box_bytes(ring, comm_rows(nccl_row(0, 1)), who, losses={(1, 1): 3})
    (tmp_path / "0.box").write_bytes(data)
    (session,) = open_run(tmp_path).sessions
    highest = int((session.records["op_seq"] + np.maximum(n_calls(session.records), 1) - 1).max())
    assert int(n_calls(session.records).sum()) + int(session.losses[1].sum()) == highest == 36
    assert session.tally["seq_gaps"] == 0
    coverage = open_run(tmp_path).coverage()
    assert (coverage.records_read, coverage.records_lost) == (33, 3)


def test_a_fan_out_is_one_op_of_the_streams_of_its_rank(tmp_path: Path) -> None:
    ring = ops(
        fold(1, 1.0, 20, match_seq=1), send(2, 2.0, peer=1, match_seq=9),
        unseen_end(send(3, 3.0, match_seq=0), EndReason.NO_TASK),
    )  # fmt: skip
    write_box(tmp_path, 0, ring)
    streams = {
        (p.peer, p.direction): p.last_entered for p in open_run(tmp_path).final_view().progress
    }
    assert streams == {(-1, Op.ALL_TO_ALL): 1, (1, Op.SEND): 9, (-1, Op.SEND): 0}
    assert ring["flags"][0] == OpFlag.COALESCED
    assert ring["kind"].tolist() == [RecordKind.P2P] * 3
