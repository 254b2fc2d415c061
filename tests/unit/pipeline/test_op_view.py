"""One op looked up by communicator and number: its layers, and why one is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comminsight import cli
from comminsight.errors import ExitCode, InputError
from comminsight.model.ops import (
    Algorithm,
    Backend,
    EndReason,
    LossReason,
    OpFlag,
    Protocol,
    SlotFlag,
    TimingSource,
    WaitSide,
)
from comminsight.model.views import AbsentOp, Layer, OpStory
from comminsight.pipeline.op_view import find_communicator, parse_op
from comminsight.report.op_text import render_op
from comminsight.run import Run, open_run
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
    open_marker,
    ops,
    unseen_end,
)
from tests.unit.analysis.tables import communicators
from tests.unit.pipeline.test_alone import TASK

F = SlotFlag
HASH = 0xABCDEF0123456789


def run_of(folder: Path, ring: np.ndarray, *slots: InFlight, abi: int = 5, **row: Any) -> Run:
    """One rank with one communicator of NCCL."""
    given = {"comm_hash": HASH, "backend": Backend.NCCL, "abi_version": abi, "name": b"tp:0"}
    comms = comm_rows(comm_row(1, "0", **(given | row)))
    who = identity(0, world_size=1)
    data = box_bytes(ring, comms, who, in_flight=slots, heartbeat_mono_ns=99_000 * MS)
    (folder / "0.box").write_bytes(data)
    return open_run(folder)


def story(run: Run, seq: int = 1) -> OpStory:
    (found,) = run.op_stories(f"#0:{seq}").ops
    return found


def layers(run: Run, seq: int = 1) -> dict[str, Layer]:
    return {layer.name: layer for layer in story(run, seq).layers}


def gpu_op(**more: int) -> np.ndarray:
    given = {
        "enqueue_ns": 90 * MS, "gpu_start_ns": 10, "gpu_end_ns": 5 * MS + 10, "n_channels": 2,
        "channels_started": 2, "channels_stopped": 2, "timing_source": TimingSource.GPU,
        "algo": Algorithm.RING, "proto": Protocol.LL128, "func_seq": 7, "stream_id": 3,
    }  # fmt: skip
    return allreduce(1, 100, ms=6, **(given | more))


def test_a_finished_op_from_its_call_to_the_network(tmp_path: Path) -> None:
    op = gpu_op()
    net = net_summary(
        op, 2, posted_bytes=64, done_bytes=64, n_send_steps=1, n_proxy_ops=4, n_proxy_ops_done=4,
        arrival_wait_us=5, last_event_ns=104 * MS,
    )  # fmt: skip
    found = layers(run_of(tmp_path, ops(op, net)))
    assert all(layer.is_seen and not layer.reason for layer in found.values())
    assert found["api"].facts["stream_id"] == 3
    assert (found["task"].facts["algorithm"], found["task"].facts["protocol"]) == ("ring", "ll128")
    kernel, network = found["kernel"].facts, found["network"].facts
    assert (kernel["begin_offset_ns"], kernel["end_offset_ns"]) == (10 * MS, 16 * MS)
    assert (kernel["took_ns"], kernel["gpu_took_ns"], kernel["timing"]) == (6 * MS, 5 * MS, "gpu")
    assert (network["done_bytes"], network["last_offset_ns"]) == (64, 14 * MS)
    assert network["arrival_wait_ns"] == 5_000


@pytest.mark.parametrize(
    ("reason", "task", "kernel"),
    [
        (EndReason.NO_TASK, "end_reason.no_task", "end_reason.no_task"),
        (EndReason.COPY_ENGINE, "end_reason.copy_engine", "end_reason.copy_engine"),
        (EndReason.NO_CHANNELS, "", "end_reason.no_channels"),
        (EndReason.NO_KERNEL_EVENTS, "", "layer.masked_kernel"),
    ],
)
def test_why_a_layer_of_an_op_without_an_end_is_missing(
    tmp_path: Path, reason: EndReason, task: str, kernel: str
) -> None:
    found = layers(run_of(tmp_path, unseen_end(allreduce(1, 1.0), reason)))
    assert (found["task"].reason, found["kernel"].reason) == (task, kernel)
    assert found["network"].reason == "layer.masked_network"


@pytest.mark.parametrize(
    ("abi", "flags", "backend", "api", "network"),
    [
        (4, 0, Backend.NCCL, "layer.no_calls", "layer.masked_network"),
        (7, OpFlag.GRAPH, Backend.NCCL, "layer.replayed", "layer.masked_network"),
        (0, 0, Backend.GLOO, "", "layer.not_nccl"),
    ],
)
def test_why_the_call_or_the_network_is_missing(
    tmp_path: Path, abi: int, flags: int, backend: Backend, api: str, network: str
) -> None:
    found = layers(run_of(tmp_path, gpu_op(flags=flags), abi=abi, backend=backend))
    assert (found["api"].reason, found["network"].reason) == (api, network)


def test_what_only_steps_tell_is_not_told_without_them(tmp_path: Path) -> None:
    op = gpu_op()
    found = layers(run_of(tmp_path, ops(op, net_summary(op, 2, n_proxy_ops=4))))
    assert found["network"].facts.keys() == {
        "n_proxy_ops", "n_proxy_ops_done", "first_offset_ns", "last_offset_ns",
    }  # fmt: skip


def test_a_mapping_that_nothing_bounds_says_so(tmp_path: Path) -> None:
    run = run_of(tmp_path, gpu_op(clock_error_ns=2**32 - 1))
    assert "no known bound" in render_op(run.op_stories("#0:1"))
    bounded = run_of(tmp_path, gpu_op(clock_error_ns=7_000))
    assert "7.00 us" in render_op(bounded.op_stories("#0:1"))


def test_an_op_without_transfers_beside_one_that_has_some(tmp_path: Path) -> None:
    other = allreduce(2, 200, op_seq=2)
    run = run_of(tmp_path, ops(gpu_op(), other, net_summary(other, 3)))
    assert layers(run)["network"].reason == "layer.no_proxy"


@pytest.mark.parametrize(
    ("slot", "stage", "task", "kernel"),
    [
        ({"slot_flags": int(F.NCCL | F.API_SEEN | F.API_RETURNED)}, "stage.open_group",
         "layer.not_yet", "layer.not_yet"),
        ({"slot_flags": int(TASK)}, "stage.not_started", "", "layer.not_yet"),
        ({"slot_flags": int(TASK), "started_mask": 3}, "stage.inside", "", ""),
        ({"slot_flags": int(TASK | F.NO_KERNEL_EVENTS)}, "", "", "layer.masked_kernel"),
    ],
)  # fmt: skip
def test_an_op_in_flight_as_far_as_it_came(
    tmp_path: Path, slot: dict[str, int], stage: str, task: str, kernel: str
) -> None:
    run = run_of(tmp_path, ops(), InFlight(gpu_op(), slot=slot))
    assert (story(run).state, story(run).stage) == ("open", stage)
    found = layers(run)
    assert (found["task"].reason, found["kernel"].reason) == (task, kernel)


def test_channels_and_sides_of_an_op_in_flight(tmp_path: Path) -> None:
    side = int(WaitSide.PEER) | int(WaitSide.ARRIVAL) << 8
    slot = {
        "slot_flags": int(TASK | F.NETWORK_SEEN), "started_mask": 0b11, "stopped_mask": 0b01,
        "wait_side": side, "net_posted_bytes": 9, "net_progress_ns": 95 * MS,
        "launch_ns": 91 * MS,
    }  # fmt: skip
    found = layers(run_of(tmp_path, ops(), InFlight(gpu_op(), slot=slot)))
    assert found["kernel"].facts["channels_running"] == [1]
    assert found["task"].facts["launch_offset_ns"] == MS
    assert found["network"].facts == {
        "posted_bytes": 9, "progress_offset_ns": 5 * MS, "send_wait": "wait.peer",
        "receive_wait": "wait.arrival",
    }  # fmt: skip


def test_an_end_counts_before_a_marker_and_a_slot_before_a_marker(tmp_path: Path) -> None:
    marked = open_marker(gpu_op(), 1)
    assert story(run_of(tmp_path, marked)).state == "open"
    ended = gpu_op()
    ended["seq"] = ended["seq_low"] = 2
    assert story(run_of(tmp_path, ops(marked, ended))).state == "done"


@pytest.mark.parametrize("seq", [5, 24])
def test_every_call_of_a_fan_out_leads_to_it(tmp_path: Path, seq: int) -> None:
    found = story(run_of(tmp_path, fold(1, 1.0, 20, op_seq=5)), seq)
    assert (found.op_seq, found.n_calls, found.op) == (5, 20, "all_to_all")


@pytest.mark.parametrize("text", ["41", ":41", "tp:x", "tp:-1", "tp:99999999999"])
def test_what_is_no_op(text: str) -> None:
    with pytest.raises(InputError, match="is no op"):
        parse_op(text)


def test_a_communicator_is_named_as_reports_name_it() -> None:
    assert parse_op("TP mesh:cpu#3:41") == ("TP mesh:cpu#3", 41)
    made = communicators([0, 1], [0, 1])
    one = type(made[0])(comm_id=0, comm_hash=HASH, ordinal=0, name="tp", desc="mesh_tp")
    two = type(made[0])(comm_id=1, comm_hash=0xABCD << 48, ordinal=0, name="tp")
    for text in (one.label, "#0", "0", "mesh_tp", "abcdef", "0xABCDEF01", f"{HASH:x}"):
        assert find_communicator([one, two], text) is one, text
    for text in ("tp", "abcd"):
        with pytest.raises(InputError, match="names 2 communicators") as caught:
            find_communicator([one, two], text)
        assert two.label in caught.value.next_step
    with pytest.raises(InputError, match="no communicator 'dp'"):
        find_communicator([one, two], "dp")


def test_an_op_that_is_not_there(tmp_path: Path) -> None:
    run = run_of(tmp_path, gpu_op())
    with pytest.raises(InputError, match="no op 7 of") as caught:
        run.op_stories("#0:7")
    assert caught.value.next_step == "recorded op_seq: 1-1"
    with pytest.raises(InputError, match="no rank 3"):
        run.op_stories("#0:1", global_rank=3)


def test_show_prints_one_op_in_both_languages_and_as_json(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    run_of(tmp_path, gpu_op())
    for lang, word in (("en", "took on the GPU"), ("zh", "GPU 上耗时")):
        assert cli.main(["show", str(tmp_path), "--op", "tp:0:1", "--lang", lang]) == ExitCode.OK
        text = capsysbinary.readouterr().out.decode()
        assert word in text
        assert "layer." not in text
        assert "?" not in text
    argv = ["show", str(tmp_path), "--op", "abcdef:1", "--rank", "0", "--json"]
    assert cli.main(argv) == ExitCode.OK
    read = json.loads(capsysbinary.readouterr().out)
    assert read["ops"][0]["layers"][2]["facts"]["took_ns"] == 6 * MS


@pytest.mark.parametrize(
    "options",
    [[], ["--rank", "0"], ["--step", "1"], ["--rank", "0", "--step", "1", "--op", "a:1"]],
)
def test_show_wants_a_step_of_a_rank_or_an_op(tmp_path: Path, options: list[str]) -> None:
    run_of(tmp_path, gpu_op())
    assert cli.main(["show", str(tmp_path), *options]) == ExitCode.USAGE


@pytest.mark.parametrize(("seq", "own"), [(4, 4), (5, 5), (6, 4), (23, 4)])
def test_a_number_within_a_fold_may_be_of_a_collective(tmp_path: Path, seq: int, own: int) -> None:
    ring = np.concatenate([fold(1, 1.0, 20, op_seq=4), allreduce(2, 100, ms=6, op_seq=5)])
    assert story(run_of(tmp_path, ring), seq).op_seq == own


def boxes(folder: Path, *ranks: tuple[np.ndarray, tuple[InFlight, ...]], **more: Any) -> Run:
    """Ranks 0.. of a world of four in one communicator."""
    for rank, (ring, slots) in enumerate(ranks):
        comms = comm_rows(comm_row(1, "0-3", me=rank, comm_hash=HASH, backend=Backend.NCCL))
        who = identity(rank, world_size=4)
        data = box_bytes(ring, comms, who, in_flight=slots, **more)
        (folder / f"{rank}.box").write_bytes(data)
    return open_run(folder)


def test_members_without_the_op_are_named_with_how_far_they_came(tmp_path: Path) -> None:
    two = ops(allreduce(1, 100), allreduce(2, 110))
    late = ops(allreduce(1, 100), allreduce(2, 118))
    view = boxes(tmp_path, (two, ()), (ops(allreduce(1, 100)), ()), (late, ())).op_stories("#0:2")
    assert [story.global_rank for story in view.ops] == [0, 2]
    assert view.absent == (
        AbsentOp(global_rank=1, has_records=True, is_whole=True, last_op_seq=1),
        AbsentOp(global_rank=3),
    )
    head = render_op(view).split("\n\n")[0].replace("\n", " ")
    assert head == (
        "Called by ranks 0,2 within 8.00 ms: first by rank 0, last by rank 2. No op of this "
        "number was called by rank 1: the last one there is op 1. Nothing at hand from rank 3."
    )


def test_a_member_whose_records_are_lost_may_have_called_it(tmp_path: Path) -> None:
    two, lost = ops(allreduce(1, 100), allreduce(2, 110)), {(1, LossReason.SLOTS_FULL): 3}
    view = boxes(tmp_path, (two, ()), (ops(allreduce(1, 100)), ()), losses=lost).op_stories("#0:2")
    assert [one.is_whole for one in view.absent if one.has_records] == [False]
    assert "whose records are not whole" in render_op(view)


def test_one_rank_alone_is_not_compared(tmp_path: Path) -> None:
    two = ops(allreduce(1, 100), allreduce(2, 110))
    run = boxes(tmp_path, (two, ()), (ops(allreduce(1, 100)), ()))
    assert run.op_stories("#0:2", global_rank=0).absent == ()
