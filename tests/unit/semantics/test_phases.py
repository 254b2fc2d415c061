"""Plans of phases from op numbers, and the trace: bounded, chunk-free, resumable, counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import Op, OpState, RecordKind
from comminsight.model.step import PhaseKind, StepSummary
from comminsight.semantics import phases as phases_module
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.phase_plan import Plan
from comminsight.semantics.phase_rules import plan_of
from comminsight.semantics.phase_symbols import N_WEIGHTS, Sign, phase_signs, place_of, weight_of
from comminsight.semantics.symbols import columns_of
from comminsight.sim import (
    Batching,
    LostRecords,
    SimLayout,
    SimRank,
    ddp_layout,
    fsdp2_layout,
    megatron_layout,
    serving_batches_layout,
    simulate,
)
from tests.builders import comm_row, comm_rows
from tests.unit.semantics.shipped import shipped_templates
from tests.unit.semantics.snapshots import carried

TEMPLATES = shipped_templates()
LETTERS = {
    "g": Sign.GATHER, "s": Sign.SCATTER, "r": Sign.REDUCE, "o": Sign.REDUCE_ROOT,
    "m": Sign.SMALL, "1": Sign.SCALAR, "i": Sign.INNER, "t": Sign.INNER_REDUCE,
    "l": Sign.LOSS, "c": Sign.INNER_SCATTER, "b": Sign.BATCH, ".": Sign.OTHER,
    "P": Sign.RECV_PREVIOUS, "N": Sign.SEND_NEXT, "n": Sign.RECV_NEXT, "p": Sign.SEND_PREVIOUS,
    "?": Sign.P2P_UNKNOWN,
}  # fmt: skip


def numbers(word: str, rank: int, size: int) -> np.ndarray:
    place = rank << 8 | size << 20
    return np.array([LETTERS[c] | (place if c in "PNnp" else 0) for c in word], np.uint32)


def told(word: str, rank: int = 1, size: int = 4) -> str:
    """Phases of ops that each last a moment: ``kind:first-last`` with the microbatch if known."""
    return shown(plan_of(numbers(word, rank, size)))


def shown(plan: Plan) -> str:
    words = []
    for one in plan:
        number = f"#{one.microbatch}" if one.microbatch >= 0 else ""
        number += f"/{one.n_microbatches}" if one.n_microbatches else ""
        words.append(f"{one.kind.value[:4]}{number}:{min(one.start)}-{min(one.end)}")
    return " ".join(words)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # op n begins at 2n and ends at 2n + 1
        ("rrr", "unkn:0-4 grad:0-1 grad:2-3 grad:4-5"),  # of one model, or of several
        ("mm", "unkn:0-2 grad:0-1 grad:2-3"),
        ("rr1gg", "back:0-2 grad:0-3 opti:4-9"),  # one norm and its gathers: one model
        ("rr1g1g", "unkn:0-2 grad:0-1 grad:2-3 opti:4-11"),
        ("oooo1g", "unkn:0-6 opti:8-11"),
        ("rr.rr1", "unkn:0-8 opti:10-11"),  # two models, buffers are broadcast between
        (".r1r1", "unkn:0-2 unkn:2-6 opti:8-9"),  # a loss is reduced per microbatch
        ("iiiirr1", "unkn:0-8 grad:8-11 opti:12-13"),
        ("iirirt1", "unkn:0-8 grad:4-11 opti:12-13"),
        ("icictt", "unkn:0-8 grad:8-11"),
        ("icic", "unkn:0-7"),
        (
            "btllltbtllltrl1",
            "forw#0/2:0-9 back#0/2:9-12 forw#1/2:12-21 back#1/2:21-24 grad:24-27 opti:28-29",
        ),
        ("btllltbtllllttr1", "unkn:0-28 grad:28-29 opti:30-31"),  # four in a row are no loss
        ("bllllllbllllllr1", "unkn:0-28 grad:28-29 opti:30-31"),  # nor is what all layers do
        ("...", "unkn:0-5"),
    ],
)
def test_replicated_gradients(word: str, expected: str) -> None:
    assert told(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ggggsgssm", "forw#0/1:0-6 back#0/1:6-14 grad:8-15 opti:16-17"),  # one unit is kept
        ("gggsss", "forw#0:0-4 unkn:4-6 back:6-10 grad:6-11"),  # nothing is gathered again
        ("ggggggsgsgss1", "forw#0/1:0-8 back#0/1:8-22 grad:12-23 opti:24-25"),
        ("gggggggggggggsgss", "unkn:0-32 grad:26-33"),  # 14 gathers are no rounds of 3 and 3
        ("gsgsgsgsmm", "unkn:0-19"),  # sequence parallel layers on the default group
        ("gs1", "forw#0:0-0 unkn:0-2 back:2-2 grad:2-3 opti:4-5"),
        (".gggsgs", "unkn:0-2 forw#0/1:2-6 back#0/1:6-12 grad:8-13"),
        (
            "gggsgsgggsgs",
            "forw#0/2:0-4 back#0/2:4-10 forw#1/2:12-16 back#1/2:16-22 grad:6-11 grad:18-23",
        ),
        ("ggggsgs", "unkn:0-12 grad:8-13"),  # five gathers for two units
        ("ggggggsss1", "unkn:0-16 grad:12-17 opti:18-19"),  # two forward passes, or two models
        ("gggggsgss", "forw#0/1:0-6 back#0/1:6-16 grad:10-17"),  # in turns, one of them ahead
        ("gggggggsgsss", "unkn:0-22 grad:14-23"),  # more of them ahead than a backward pass has
        ("ggggss", "unkn:0-10 grad:8-11"),  # the second pair is of either pass
        ("ggggggggss", "unkn:0-18 grad:16-19"),  # four microbatches that stay gathered, or two
    ],
)
def test_sharded_parameters(word: str, expected: str) -> None:
    assert told(word) == expected


def reduced(*sizes: int) -> np.ndarray:
    """Numbers of reductions of these sizes; 0 is another op."""
    return np.array([Sign.REDUCE | size << 8 if size else Sign.OTHER for size in sizes], np.uint32)


@pytest.mark.parametrize(
    ("first", "sizes", "expected"),
    [
        ((9,), (1, 5, 3), "back:0-4 grad:0-5"),  # DDP's first step has one bucket for all
        ((4, 7), (1, 3, 2, 2, 3), "back:0-2 unkn:2-4 back:4-8 grad:0-3 grad:4-9"),
        ((4, 7), (1, 3, 0, 2, 2, 3), "back:0-2 unkn:2-6 back:6-10 grad:0-3 grad:6-11"),
        ((4, 7), (1, 0, 3, 2, 2, 3), "unkn:0-6 back:6-10 grad:6-11"),  # a pass that is broken into
        ((4, 7), (4, 2, 2, 3), "unkn:0-2 back:2-6 grad:0-1 grad:2-7"),
        ((4, 4, 7), (1, 3, 2, 1, 3, 4, 1), "unkn:0-12"),  # in turns: one pass, or two
        ((4, 7), (1, 3, 2, 2), "unkn:0-6"),  # fewer bytes
        ((4, 7), (1, 3, 2, 2, 3, 1), "unkn:0-10"),  # more
        ((7, 4), (1, 3, 2, 2, 3), "unkn:0-8"),  # in another order
        ((1, 5, 3), (1, 5, 3), "unkn:0-4"),  # buckets from the beginning: nothing is proved
        ((2, N_WEIGHTS - 1), (1, 1, N_WEIGHTS - 2, 1), "back:0-2 unkn:2-4 back:4-6 grad:0-3"),
    ],
)
def test_models_are_told_by_the_first_step(
    first: tuple[int, ...], sizes: tuple[int, ...], expected: str
) -> None:
    assert shown(plan_of(reduced(*sizes), of_first_step=first)).startswith(expected)


def test_weights_stand_for_bytes() -> None:
    table = CommTable(8)
    table.add(comm_rows(comm_row(1, "0-7", 2, desc=b"default_pg")))
    rows = np.zeros(3, OP_DTYPE)
    rows["comm_index"], rows["op"] = 1, Op.ALL_REDUCE
    rows["size_bytes"] = [1 << 25, 1 << 26, 3 << 25]  # equal modulo a power of two
    one, other, both = map(weight_of, phase_signs(rows, table, columns_of(rows, table)).tolist())
    assert one != other
    assert (one + other) % N_WEIGHTS == both


def test_microbatches_that_gather_only_are_counted_by_units() -> None:
    one = "gggggggg"  # four units forward, four backward
    last = "gggggg" + "sgsgss"
    plan = told(one + one + last).split()
    assert [part.split(":")[0] for part in plan] == [
        "forw#0/3", "back#0/3", "forw#1/3", "back#1/3", "forw#2/3", "back#2/3", "grad"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # an evaluation of two batches in front: as many gathers as a microbatch, and its loss
        ("gggg" + "1" + "gggsgs", "unkn:0-20 grad:16-21"),
        # forward and backward passes of two models: three units and two
        ("ggggsgssgggsgs", "forw:0-6 back:6-14 forw:16-20 back:20-26 grad"),
    ],
)
def test_rounds_that_are_no_microbatches_have_no_numbers(word: str, expected: str) -> None:
    assert told(word).startswith(expected)


def test_a_loss_of_every_microbatch_is_no_evaluation() -> None:
    begin, plain, end = "ggg1ggg", "gggggg", "ggg1gsgsgs"
    assert told(begin + begin + end).startswith("forw#0/3:0-8 back#0/3:8-14 forw#1/3:14-22")
    assert told(begin + plain + end).startswith("unkn")
    assert told(plain + "1" + plain + "1" + "ggggsgsgs").startswith("forw#0/3")
    assert told(plain + "1" + plain + "ggggsgsgs").startswith("unkn")
    assert told(plain + "1" + "ggggsgsgs").startswith("unkn")  # an evaluation, or a microbatch


def test_rounds_that_scatter_other_bytes_are_of_other_models() -> None:
    own = numbers("gggsgsgggsgs", 0, 1)
    assert shown(plan_of(own)).startswith("forw#0/2:0-4 back#0/2:4-10 forw#1/2")
    own[3] |= 5 << 8
    assert shown(plan_of(own)).startswith("forw:0-4 back:4-10 forw:12-16 back:16-22 grad")


@pytest.mark.parametrize(
    ("word", "place", "expected"),
    [
        (
            "PtNPtNntpPtNntpntprr1", (2, 4),
            "forw#0/3:1-4 forw#1/3:7-10 back#0/3:13-16 forw#2/3:19-22 back#1/3:25-28 "
            "back#2/3:31-34 "
            "bubb:0-1 bubb:6-7 bubb:12-13 bubb:18-19 bubb:24-25 bubb:30-31 "
            "warm:1-7 stea:7-28 cool:28-34 grad:36-39 opti:40-41",
        ),
        # the last stage: a forward and a backward pass that nothing parts
        ("PtttpPtttp1", (3, 4), "unkn:1-8 unkn:11-18 bubb:0-1 bubb:10-11 stea:1-18"),
        # the first stage: one op is a forward pass, so the two before it are the backward pass;
        # where work ends and begins between them is not known
        (
            "tNtNntttNnttntt1", (0, 2),
            "forw#0/3:0-2 forw#1/3:2-6 back#0/3:9-13 unkn:13-14 forw#2/3:14-16 "
            "back#1/3:19-24 back#2/3:25-29 "
            "bubb:8-9 bubb:18-19 bubb:24-25 warm:0-2 stea:2-24 cool:24-29",
        ),
        # a batch is handed out where a forward pass begins
        (
            "btNbtNntbtNnttntt", (0, 2),
            "forw#0/3:0-4 forw#1/3:4-10 back#0/3:13-16 forw#2/3:16-20 back#1/3:23-28 "
            "back#2/3:29-33 "
            "bubb:12-13 bubb:22-23 bubb:28-29 warm:0-4 stea:4-28 cool:28-33",
        ),
        # the last stage where a loss is reduced at the end of a forward pass
        ("PbtllltpPbtllltpr1", (3, 4),
         "forw#0/2:1-11 back#0/2:11-14 forw#1/2:17-27 back#1/2:27-30 bubb:0-1 bubb:16-17 stea:1-30 "
         "grad:32-33 opti:34-35"),
        ("PlllllpPlllllp", (3, 4), "unkn:1-12 unkn:15-26 bubb:0-1 bubb:14-15 stea:1-26"),
        # among two stages, a stretch behind a receive as long as a forward pass is one: of another
        # chunk, so that no direction holds
        ("ttNttNnttNnttNnttttN", (0, 2), "unkn:0-39 bubb:12-13 bubb:20-21 bubb:28-29"),
        ("PtpPtpPttpPttp", (1, 2), "unkn:0-27 bubb:0-1 bubb:6-7 bubb:12-13 bubb:20-21"),
        ("tN?t", (0, 4), "unkn:0-7"),
        # passes of a pipeline that has nothing but its messages
        ("PNnp", (1, 3), "forw#0/1:1-2 back#0/1:5-6 bubb:0-1 bubb:4-5 stea:1-6"),
    ],
)  # fmt: skip
def test_pipeline(word: str, place: tuple[int, int], expected: str) -> None:
    assert told(word, *place) == expected


def test_signs_of_ops() -> None:
    table = CommTable(8)
    table.add(
        comm_rows(
            comm_row(1, "0-7", 2, desc=b"default_pg"),
            comm_row(2, "0,2,4,6", 2, desc=b"mesh_pp"),
            comm_row(3, "2,3", 2, desc=b"mesh_tp"),
        )
    )
    ops = [
        (1, Op.ALL_REDUCE, 1 << 20, -1, Sign.REDUCE), (1, Op.ALL_REDUCE, 4, -1, Sign.SCALAR),
        (1, Op.ALL_REDUCE, 64, -1, Sign.SMALL), (3, Op.ALL_REDUCE, 1 << 17, -1, Sign.INNER_REDUCE),
        (3, Op.ALL_REDUCE, 4, -1, Sign.LOSS),
        (3, Op.BROADCAST, 64, 0, Sign.BATCH), (2, Op.RECV, 64, 0, Sign.RECV_PREVIOUS),
        (2, Op.SEND, 64, 2, Sign.SEND_NEXT), (2, Op.RECV, 64, 2, Sign.RECV_NEXT),
        (2, Op.SEND, 64, 0, Sign.SEND_PREVIOUS), (2, Op.SEND, 64, 3, Sign.P2P_UNKNOWN),
        (2, Op.RECV, 64, -1, Sign.P2P_UNKNOWN), (9, Op.ALL_REDUCE, 64, -1, Sign.OTHER),
    ]  # fmt: skip
    rows = np.zeros(len(ops), OP_DTYPE)
    for place, (comm, op, size_bytes, peer, _) in enumerate(ops):
        rows["comm_index"][place], rows["op"][place] = comm, op
        rows["size_bytes"][place], rows["peer_or_root"][place] = size_bytes, peer
        rows["kind"][place] = RecordKind.P2P if op in {Op.SEND, Op.RECV} else RecordKind.COLLECTIVE
    found = phase_signs(rows, table, columns_of(rows, table))
    assert (found & 0x7F).tolist() == [sign for *_, sign in ops]
    assert place_of(int(found[6])) == (1, 4)


def fed(
    rank: SimRank, sizes: list[int], *, crash_every: int = 0
) -> tuple[list[StepSummary], SessionEngine]:
    """Steps and the engine that got the rank's records in pieces of these sizes in turns."""
    engine = SessionEngine(TEMPLATES, identity=rank.session)
    engine.add_comms(rank.comms)
    steps: list[StepSummary] = []
    at = turn = 0
    while at < len(rank.records):
        size = sizes[turn % len(sizes)]
        steps += engine.push(rank.records[at : at + size])
        at, turn = at + size, turn + 1
        if crash_every and turn % crash_every == 0:
            engine = SessionEngine.resume(carried(engine), TEMPLATES)
    return steps + engine.finish(), engine


@pytest.mark.parametrize("layout", [fsdp2_layout(4), megatron_layout(2, 4, 1, microbatches=6)])
def test_phases_do_not_depend_on_chunks_or_crashes(layout: SimLayout) -> None:
    for rank in simulate(layout, steps=12, seed=4).ranks[:3]:
        whole = fed(rank, [1 << 20])[0]
        assert all(step.phases for step in whole)
        for sizes, crash_every in (([1], 0), ([7, 31, 2], 0), ([13, 90], 1), ([5], 3)):
            assert fed(rank, sizes, crash_every=crash_every)[0] == whole


def test_kinds_of_iterations_do_not_depend_on_chunks_or_crashes() -> None:
    rank = simulate(serving_batches_layout(2, Batching.SEPARATE), steps=70, seed=4).ranks[0]
    whole = fed(rank, [1 << 20])[0]
    assert len({phase.kind for step in whole for phase in step.phases}) == 3
    for sizes, crash_every in (([1], 0), ([7, 31, 2], 0), ([13, 90], 1), ([5], 3)):
        assert fed(rank, sizes, crash_every=crash_every)[0] == whole


def test_nothing_is_said_of_a_step_that_lost_records() -> None:
    layout = megatron_layout(2, 4, 1, microbatches=6)
    faults = (LostRecords(rank=-1, fraction=0.002),)
    steps, engine = fed(simulate(layout, steps=30, seed=4, faults=faults).ranks[2], [4096])
    spoiled = [step for step in steps if step.n_lost]
    assert 0 < len(spoiled) < 30
    assert engine.tally["steps_without_phases"] == len(spoiled)
    for step in spoiled:
        (one,) = step.phases
        assert (one.kind, one.start_ns, one.end_ns) == (
            PhaseKind.UNKNOWN, step.start_ns, step.end_ns
        )  # fmt: skip


def test_an_end_that_was_not_seen_bounds_no_phase() -> None:
    rank = simulate(megatron_layout(2, 4, 2, microbatches=6), steps=12, seed=4).ranks[4]
    is_gradient = rank.records["size_bytes"] > 1 << 20
    records = rank.records.copy()
    records["end_ns"][is_gradient], records["state"][is_gradient] = 0, OpState.UNOBSERVABLE
    kinds = [{phase.kind for phase in step.phases} for step in fed(rank, [4096])[0]]
    less = [
        {phase.kind for phase in step.phases}
        for step in fed(replace(rank, records=records), [4096])[0]
    ]
    assert len(kinds) == len(less) == 12
    for before, after in zip(kinds, less, strict=True):
        assert before - after == {PhaseKind.GRAD_SYNC}
        assert {PhaseKind.FORWARD, PhaseKind.BACKWARD, PhaseKind.OPTIMIZER} <= after


def test_an_op_that_ends_behind_the_step_does_not_widen_it() -> None:
    rank = simulate(replace(ddp_layout(4), has_startup=True), steps=8, seed=4).ranks[1]
    records = rank.records.copy()
    buckets = np.flatnonzero(records["size_bytes"] == records["size_bytes"][-2])
    records["end_ns"][buckets[-3]] = records["end_ns"][buckets[-1]] + 1_000_000
    *_, last = fed(replace(rank, records=records), [4096])[0]
    (sync,) = [phase for phase in last.phases if phase.kind is PhaseKind.GRAD_SYNC]
    assert (sync.start_ns, sync.end_ns) == (last.start_ns, last.end_ns)
    assert last.end_ns < records["end_ns"][buckets[-3]]


@pytest.mark.parametrize("sizes", [[1 << 20], [3], [50, 1]])
def test_a_step_of_too_many_ops_is_counted_and_its_trace_bounded(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = simulate(fsdp2_layout(4), steps=12, seed=4).ranks[0]
    n_ops = fed(rank, [1 << 20])[0][0].n_ops
    monkeypatch.setattr(phases_module, "MAX_TRACED_OPS", n_ops - 1)
    steps, engine = fed(rank, sizes)
    assert engine.tally["steps_without_phases"] == len(steps) == 12
    assert {len(step.phases) for step in steps} == {1}
    monkeypatch.setattr(phases_module, "MAX_TRACED_OPS", n_ops)
    assert fed(rank, sizes)[1].tally["steps_without_phases"] == 0


def test_the_trace_of_a_step_that_never_ends_is_bounded() -> None:
    table = CommTable(8)
    table.add(comm_rows(comm_row(1, "0-7", 2, desc=b"default_pg")))
    trace = phases_module.PhaseTrace(table, n_tail=7)
    rows = np.zeros(1000, OP_DTYPE)
    rows["comm_index"] = 1
    held = []
    for _ in range(200):
        trace.feed(rows, columns_of(rows, table))
        trace.forget(0)
        held.append(len(trace.snapshot().numbers) // 4)
    n_whole = (phases_module.MAX_TRACED_OPS + 7) // 1000
    assert held == [*range(1000, n_whole * 1000 + 1, 1000), *[7] * (200 - n_whole)]
