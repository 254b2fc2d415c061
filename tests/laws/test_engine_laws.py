"""The four laws of the semantic engine: order, agreement, resume, conservation.

For any stream that a recorder can write (records at completion, communicator by communicator,
shuffled inside the safe window, ops in flight for up to 20 s behind their OPEN markers, losses,
late records, corrupt stamps, drains) and any chunking of it.
"""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import OpState, RecordKind
from comminsight.model.step import StepSummary
from comminsight.semantics.arrival import OrderSettings
from comminsight.semantics.breaker import BreakerSettings
from comminsight.semantics.communicators import join_communicators
from comminsight.semantics.engine import (
    EngineSettings,
    SessionEngine,
)
from comminsight.semantics.reorder import Reorder
from comminsight.sim import (
    Jitter,
    LostRecords,
    RecorderSettings,
    SimLayout,
    ddp_layout,
    fsdp2_layout,
    megatron_layout,
    moe_layout,
    simulate,
)
from tests.builders import MS, comm_row, comm_rows, identity, record
from tests.unit.semantics.shipped import shipped_templates
from tests.unit.semantics.snapshots import carried

TEMPLATES = shipped_templates()
ORDER = OrderSettings(safe_window_ns=400 * MS, push_window_ns=50 * MS)
SETTINGS = EngineSettings(order=ORDER)
COMMS = comm_rows(
    comm_row(1, "0-7", 0, desc=b"default_pg"),
    comm_row(2, "0-1", 0, desc=b"mesh_tp"),
    comm_row(3, "0,4", 0, desc=b"mesh_pp"),
)
FLOW = ("order_emitted", "order_late", "order_bad", "order_dropped", "order_markers")
LAWS = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def streams(draw: st.DrawFn, *, max_steps: int = 14, is_clean: bool = False) -> np.ndarray:
    """A rank's records in arrival order: TP ops, a P2P op, the closing anchor, per step."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, now_ms = [], 1000.0
    for _ in range(draw(st.integers(3, max_steps))):
        n_inner = int(rng.integers(2, 7))
        plan = [(2, 1 << 16, 1)] * n_inner + [(3, 1 << 16, 2), (1, 4, 1)]
        for comm, size, kind in plan:
            now_ms += float(rng.uniform(1, 40))
            is_long = comm == 3 and rng.random() < 0.15
            duration_ms = float(rng.uniform(500, 20_000)) if is_long else float(rng.uniform(0.1, 9))
            rows.append(
                record(
                    kind=kind, op=10 if kind == 2 else 1, comm_index=comm, size_bytes=size,
                    count=size // 4, dtype=9, start_ns=round(now_ms * MS), state=OpState.DONE,
                    end_ns=round((now_ms + duration_ms) * MS), op_seq=len(rows) + 1,
                    match_seq=len(rows) + 1,
                )
            )  # fmt: skip
    batch = arrivals(np.concatenate(rows), rng, dump_ms=draw(st.sampled_from([0, 40, 150])))
    return batch if is_clean else spoiled(batch, rng)


def arrivals(done: np.ndarray, rng: np.random.Generator, *, dump_ms: int) -> np.ndarray:
    """Completion order with OPEN (and sometimes OVERDUE) markers, dumped per communicator."""
    parts, when = [done], [done["end_ns"].astype(np.float64)]
    for state, age_ms in ((OpState.OPEN, 200), (OpState.OVERDUE, 15_000)):
        marked = done[done["end_ns"] - done["start_ns"] > age_ms * MS].copy()
        marked["state"], marked["end_ns"] = state, 0
        parts.append(marked)
        when.append(marked["start_ns"] + age_ms * float(MS))
    batch, arrival = np.concatenate(parts), np.concatenate(when)
    if dump_ms:
        order = np.lexsort((arrival, batch["comm_index"], arrival // (dump_ms * MS)))
    else:
        order = np.argsort(arrival + rng.uniform(0, 100 * MS, len(arrival)), kind="stable")
    return numbered(batch[order])


def spoiled(batch: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Losses, late arrivals, corrupt starts and a forced drain."""
    position = np.arange(len(batch), dtype=np.float64)
    position[rng.random(len(batch)) < 0.05] += rng.integers(1, 60)
    batch = numbered(batch[np.argsort(position, kind="stable")])
    corrupt = rng.random(len(batch)) < 0.03
    batch["start_ns"][corrupt] = rng.choice([0, -7, 1 << 60], int(corrupt.sum()))
    at = int(rng.integers(0, len(batch)))
    marker = record(kind=RecordKind.DRAIN, start_ns=int(batch["end_ns"][at]))
    batch = numbered(np.concatenate([batch[:at], marker, batch[at:]]))
    return batch[rng.random(len(batch)) > 0.03]


def numbered(batch: np.ndarray) -> np.ndarray:
    batch["seq"] = batch["seq_low"] = np.arange(1, len(batch) + 1)
    return batch


def chunks(batch: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(batch, sorted(cut % (len(batch) + 1) for cut in cuts))


def engine_for(comms: np.ndarray = COMMS, limits: EngineSettings = SETTINGS) -> SessionEngine:
    engine = SessionEngine(TEMPLATES, limits, identity(0, 8))
    engine.add_comms(comms)
    return engine


def run(engine: SessionEngine, parts: list[np.ndarray]) -> list[StepSummary]:
    return [step for part in parts for step in engine.push(part)] + engine.finish()


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@LAWS
@given(streams(is_clean=True), CUTS)
def test_order_equals_the_offline_sort_when_disorder_stays_inside_the_window(
    batch: np.ndarray, cuts: list[int]
) -> None:
    order = Reorder(ORDER)
    emitted = np.concatenate([*map(order.push, chunks(batch, cuts)), order.drain()])
    is_op = (batch["state"] != OpState.OPEN) & (batch["state"] != OpState.OVERDUE)
    overdue = order.tally["order_late"]
    truth = batch[is_op]
    truth = truth[np.lexsort((truth["seq"], truth["start_ns"]))]
    is_released = np.isin(truth["op_seq"], batch["op_seq"][batch["state"] == OpState.OVERDUE])
    assert overdue <= int(is_released.sum())  # only an op given up as overdue may come late
    kept = np.isin(truth["seq"], emitted["seq"])
    assert (kept | is_released).all()
    assert (emitted == truth[kept]).all()


@LAWS
@given(streams(), CUTS)
def test_order_never_depends_on_the_chunking(batch: np.ndarray, cuts: list[int]) -> None:
    whole, parts = Reorder(ORDER), Reorder(ORDER)
    expected = np.concatenate([whole.push(batch), whole.drain()])
    emitted = np.concatenate([*map(parts.push, chunks(batch, cuts)), parts.drain()])
    assert (emitted == expected).all()
    assert parts.tally == whole.tally
    assert parts.losses.snapshot() == whole.losses.snapshot()
    assert (np.diff(emitted["start_ns"]) >= 0).all()


@LAWS
@given(streams(), CUTS)
def test_agreement_live_equals_replay(batch: np.ndarray, cuts: list[int]) -> None:
    live, replay = engine_for(), engine_for()
    assert run(live, chunks(batch, cuts)) == run(replay, [batch])
    assert live.tally == replay.tally
    assert live.selection == replay.selection
    assert live.state == replay.state


@LAWS
@given(streams(), CUTS, st.integers(0, 10_000))
def test_resume_equals_never_having_stopped(batch: np.ndarray, cuts: list[int], stop: int) -> None:
    whole = engine_for()
    expected = run(whole, [batch])
    at = stop % (len(batch) + 1)
    first = engine_for()
    steps = [step for part in chunks(batch[:at], cuts) for step in first.push(part)]
    second = SessionEngine.resume(carried(first), TEMPLATES)
    steps += run(second, [batch[at:]])
    assert steps == expected
    assert second.tally == whole.tally
    assert second.snapshot() == whole.snapshot()


@LAWS
@given(
    streams(),
    CUTS,
    st.sampled_from(
        [SETTINGS, EngineSettings(order=ORDER, breaker=BreakerSettings(max_held_ops=20))]
    ),
)
def test_conservation_of_records_and_of_ops(
    batch: np.ndarray, cuts: list[int], limits: EngineSettings
) -> None:
    engine = engine_for(limits=limits)
    n_read, n_in_steps = 0, 0
    for part in [*chunks(batch, cuts), None]:
        steps = engine.finish() if part is None else engine.push(part)
        n_read += 0 if part is None else len(part)
        n_in_steps += sum(step.n_ops for step in steps)
        tally = engine.tally
        assert tally["order_read"] == n_read
        assert n_read == sum(tally[name] for name in FLOW) + engine.state.n_pending
    if not engine.state.is_step_open:
        accounted = tally["ops_before_first_step"] + n_in_steps + tally["ops_between_steps"]
        assert accounted == tally["order_emitted"]


@pytest.mark.parametrize(
    ("layout", "template"),
    [
        (ddp_layout(4), "ddp"),
        (ddp_layout(4, has_loss_reduce=False), "ddp"),
        (ddp_layout(4, buckets=1), "ddp"),
        (fsdp2_layout(4), "fsdp2"),
        (megatron_layout(2, 2, 2), "tp-pp-dp"),
        (megatron_layout(1, 4, 2), "tp-pp-dp"),
        (megatron_layout(2, 1, 2, microbatches=8), "tp-pp-dp"),
        (megatron_layout(1, 4, 1), "tp-pp-dp"),
        (moe_layout(4, 2), "tp-pp-dp"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.schedule}{value.world_size}",
)
@pytest.mark.parametrize("dump_ms", [0, 100])
def test_every_step_of_a_simulated_job_is_found_on_every_rank(
    layout: SimLayout, template: str, dump_ms: int
) -> None:
    run_of_job = simulated(layout, dump_ms)
    for rank in run_of_job.ranks:
        engine = SessionEngine(TEMPLATES, None, rank.session)
        engine.add_comms(rank.comms)
        steps = run(engine, np.array_split(rank.records, 17))
        assert engine.state.template == template
        assert len(steps) == 40
        assert all(step.coverage_complete for step in steps)
        firsts = {int(seq) for seq in np.flatnonzero(np.diff(rank.log.steps, prepend=-1)) + 1}
        assert [step.first.op_seq for step in steps] == op_seqs_at(rank.log.ops, firsts)


def op_seqs_at(ops: np.ndarray, positions: set[int]) -> list[int]:
    return [int(ops["op_seq"][position - 1]) for position in sorted(positions)]


@cache
def simulated(layout: SimLayout, dump_ms: int):  # type: ignore[no-untyped-def]
    recorder = RecorderSettings(dump_period_ns=dump_ms * MS)
    return simulate(layout, steps=40, seed=7, jitter=Jitter(), settings=recorder)


@LAWS
@given(st.integers(0, 2**32 - 1), CUTS)
def test_no_bytes_break_the_engine(seed: int, cuts: list[int]) -> None:
    """Random records, half of them made plausible enough to get past the first checks."""
    rng = np.random.default_rng(seed)
    batch = np.frombuffer(rng.bytes(300 * OP_DTYPE.itemsize), OP_DTYPE).copy()
    for name, high in (("kind", 6), ("op", 14), ("state", 8), ("comm_index", 5)):
        batch[name][::2] = rng.integers(0, high, 150)
    batch["start_ns"][::2] = rng.integers(-5, 5000 * MS, 150)
    comms = np.frombuffer(rng.bytes(3 * COMMS.dtype.itemsize), COMMS.dtype)
    live, replay = engine_for(np.concatenate([COMMS, comms])), engine_for(COMMS)
    replay.add_comms(comms)
    assert run(live, chunks(batch, cuts)) == run(replay, [batch])
    assert live.tally == replay.tally
    tally = live.tally
    assert tally["order_read"] == len(batch) == sum(tally[name] for name in FLOW)
    join_communicators([(identity(0, 8), np.concatenate([COMMS, comms])), (identity(1, 8), comms)])


def test_lost_records_spoil_coverage_and_nothing_else() -> None:
    layout = megatron_layout(2, 2, 2)
    job = simulate(layout, steps=40, seed=3, faults=[LostRecords(rank=5, fraction=0.002)])
    rank = job.ranks[5]
    engine = SessionEngine(TEMPLATES, None, rank.session)
    engine.add_comms(rank.comms)
    steps = run(engine, [rank.records])
    n_lost = int(rank.records["seq"][-1]) - len(rank.records)
    assert n_lost > 0
    assert engine.tally["seq_gaps"] == n_lost
    spoiled_steps = [step for step in steps if not step.coverage_complete]
    assert 0 < len(spoiled_steps) <= 2 * n_lost
    assert sum(step.n_lost for step in spoiled_steps) >= n_lost


def test_memory_stays_flat_while_the_job_grows() -> None:
    batch = np.zeros(0, OP_DTYPE)
    engine = engine_for()
    peaks = []
    for first_step in range(0, 3000, 500):
        rows = [
            record(
                kind=1, op=1, comm_index=2 if i < 9 else 1, size_bytes=4096 if i < 9 else 4,
                count=1024 if i < 9 else 1, start_ns=(step * 10 + i + 1) * 10 * MS,
                end_ns=(step * 10 + i + 1) * 10 * MS + MS, op_seq=step * 10 + i + 1,
            )
            for step in range(first_step, first_step + 500)
            for i in range(10)
        ]  # fmt: skip
        batch = np.concatenate(rows)
        batch["seq"] = first_step * 10 + np.arange(1, len(batch) + 1)
        engine.push(batch)
        peaks.append(len(msgspec.msgpack.encode(engine.snapshot())))
    assert max(peaks) < 1.1 * peaks[0]
