"""The breaker: at which op it opens and why, what it frees, and what it leaves alone."""

from __future__ import annotations

import tracemalloc

import msgspec
import numpy as np
import pytest

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import CommRole, Op, OpState
from comminsight.model.session import BreakReason, SessionBreak
from comminsight.model.step import StepSummary
from comminsight.semantics.breaker import BreakerSettings
from comminsight.semantics.engine import EngineSettings, SessionEngine
from comminsight.semantics.template import GroupRule, Symbol, Template, Topology
from tests.builders import MS, comm_row, comm_rows, identity, record

TP, DP = 2, 3
COMMS = comm_rows(comm_row(TP, "0-1", 0, desc=b"mesh_tp"), comm_row(DP, "0-3", 0, desc=b"mesh_dp"))
WIDE_TP = comm_rows(comm_row(4, "0-7", 0, desc=b"mesh_tp"))
TEMPLATE = Template(
    name="made-up",
    version=1,
    opens=(((Symbol(ops=(Op.BROADCAST,)),),),),
    closes=(((Symbol(roles=(CommRole.DP,), ops=(Op.ALL_REDUCE,)),),),),
    anchors=(((Symbol(roles=(CommRole.DP,), ops=(Op.ALL_REDUCE,)),),),),
)


def op(kind: Op, at_ms: int, comm: int = TP) -> np.ndarray:
    return record(
        kind=1, op=kind, comm_index=comm, size_bytes=4096, count=1024, dtype=9, state=OpState.DONE,
        start_ns=at_ms * MS, end_ns=at_ms * MS + MS // 2,
    )  # fmt: skip


def numbered(rows: list[np.ndarray]) -> np.ndarray:
    batch = np.concatenate(rows)
    batch["seq"] = batch["op_seq"] = batch["match_seq"] = np.arange(1, len(batch) + 1)
    return batch


def steps_then(n_steps: int, *rest: np.ndarray) -> np.ndarray:
    """Steps of 10 ms (a broadcast, two TP ops, the closing DP op), then other ops."""
    rows = []
    for step in range(n_steps):
        at = 1000 + 10 * step
        rows += [op(Op.BROADCAST, at), op(Op.ALL_REDUCE, at + 1), op(Op.ALL_REDUCE, at + 2)]
        rows.append(op(Op.ALL_REDUCE, at + 3, DP))
    return numbered([*rows, *rest])


def run(
    batch: np.ndarray,
    limits: BreakerSettings | None = None,
    *templates: Template,
    comms: np.ndarray = COMMS,
    cuts: tuple[int, ...] = (),
) -> tuple[list[StepSummary], SessionEngine]:
    settings = EngineSettings(breaker=limits or BreakerSettings())
    engine = SessionEngine(templates or (TEMPLATE,), settings, identity(0, 8))
    engine.add_comms(comms)
    steps = [step for part in np.split(batch, cuts) for step in engine.push(part)]
    return steps + engine.finish(), engine


def broken(engine: SessionEngine) -> SessionBreak:
    assert engine.state.broken is not None
    return engine.state.broken


def later(n_ops: int, *, gap_ms: int = 1) -> list[np.ndarray]:
    return [op(Op.ALL_REDUCE, 1040 + gap_ms * (i + 1)) for i in range(n_ops)]


@pytest.mark.parametrize("cuts", [(), (5, 17, 18, 40), tuple(range(1, 70))])
@pytest.mark.parametrize("n_more", [50, 51, 80])
def test_ops_without_a_step_are_counted_from_the_last_open(
    n_more: int, cuts: tuple[int, ...]
) -> None:
    batch = steps_then(4, *later(n_more - 3))  # the last step has three ops behind its Open
    steps, engine = run(batch, BreakerSettings(max_ops_without_step=50), cuts=cuts)
    if n_more == 50:
        assert engine.state.broken is None
        assert len(steps) == 4
        return
    assert len(steps) == 3
    found = broken(engine)
    assert (found.reason, found.n_ops, found.n_ops_without_step) == (BreakReason.NO_STEP, 64, 51)
    assert found.at_ns == int(batch["start_ns"][63])
    assert (found.template, found.is_step_open) == ("made-up", True)


def test_time_without_a_step_counts_and_a_pause_does_not() -> None:
    limits = BreakerSettings(max_ns_without_step=1_000 * MS, max_pause_ns=100 * MS)
    _, engine = run(steps_then(4, *later(1200)), limits)
    found = broken(engine)
    assert found.reason is BreakReason.NO_STEP
    assert found.at_ns == 2031 * MS  # the last Open was complete at 1030 ms
    assert found.active_ns == 1001 * MS
    # the same job goes idle for an hour, then makes another step: nothing is wrong with it
    hour_ms = 3_600_000
    idle = steps_then(4, *[row.copy() for row in np.split(steps_then(4), 16)])
    idle["start_ns"][16:] += hour_ms * MS
    idle["end_ns"][16:] += hour_ms * MS
    steps, engine = run(idle, limits)
    assert engine.state.broken is None
    assert len(steps) == 8


def test_time_without_a_template_counts() -> None:
    limits = BreakerSettings(max_held_ns=1_000 * MS, max_pause_ns=100 * MS)
    _, engine = run(numbered(later(3000)), limits)
    found = broken(engine)
    assert (found.reason, found.template) == (BreakReason.NO_TEMPLATE, "")
    assert 1_000 * MS < found.active_ns < 2_000 * MS
    assert found.n_ops == found.n_ops_without_step == found.n_ops_before_first_step


def test_when_no_template_can_match_any_more_nothing_is_waited_for() -> None:
    never = msgspec.structs.replace(TEMPLATE, forbids=(((Symbol(roles=(CommRole.TP,)),),),))
    _, engine = run(steps_then(40), None, never)
    assert (broken(engine).reason, broken(engine).n_ops) == (BreakReason.NO_TEMPLATE, 16)


@pytest.mark.parametrize(
    ("topology", "refusal", "missing"),
    [
        (Topology(min_world=9), "topology_not_met", ("world >=9",)),
        (Topology(max_world=4), "topology_not_met", ("world <=4",)),
        (Topology(groups=(GroupRule(CommRole.PP),)), "groups_not_seen", ("PP size",)),
        (Topology(groups=(GroupRule(CommRole.TP, 4),)), "topology_not_met", ("TP size >=4",)),
        (Topology(groups=(GroupRule(CommRole.DP, 1, 2),)), "topology_not_met", ("DP size <=2",)),
    ],
)
def test_a_template_whose_layout_is_another_does_not_fit(
    topology: Topology, refusal: str, missing: tuple[str, ...]
) -> None:
    template = msgspec.structs.replace(TEMPLATE, topology=topology)
    _, engine = run(steps_then(40), BreakerSettings(max_held_ops=100), template)
    assert broken(engine).reason is BreakReason.TOPOLOGY
    (score,) = engine.selection
    assert (score.reason, score.missing_symbols) == (refusal, missing)


def test_a_layout_that_is_right_or_unknown_is_met() -> None:
    rules = (GroupRule(CommRole.TP, 2, 2), GroupRule(CommRole.DP, 2))
    template = msgspec.structs.replace(TEMPLATE, topology=Topology(min_world=8, groups=rules))
    assert len(run(steps_then(40), None, template)[0]) == 40
    engine = SessionEngine([template], None, identity(0, -1))
    engine.add_comms(COMMS)
    assert len(engine.push(steps_then(40)) + engine.finish()) == 40


@pytest.mark.parametrize("cuts", [(), tuple(range(1, 170, 7))])
def test_a_communicator_that_breaks_the_layout_later_ends_the_steps(cuts: tuple[int, ...]) -> None:
    rules = Topology(groups=(GroupRule(CommRole.TP, 2, 4),))
    template = msgspec.structs.replace(TEMPLATE, topology=rules)
    batch = steps_then(30, op(Op.ALL_REDUCE, 1400, comm=4), *later(50, gap_ms=10))
    batch["start_ns"][121:] += 1000 * MS
    comms = np.concatenate([COMMS, WIDE_TP])
    steps, engine = run(batch, None, template, comms=comms, cuts=cuts)
    assert len(steps) == 29
    found = broken(engine)
    assert (found.reason, found.at_ns) == (BreakReason.TOPOLOGY, 1400 * MS)
    assert found.n_ops == 121


def test_an_opened_breaker_has_freed_its_buffers() -> None:
    n_ops = 100_000
    batch = np.repeat(op(Op.ALL_REDUCE, 1000), n_ops)
    batch["seq"] = np.arange(1, n_ops + 1)
    for name in ("start_ns", "end_ns"):
        batch[name] += np.arange(n_ops) * MS
    engine = SessionEngine([TEMPLATE], EngineSettings(), identity(0, 8))
    engine.add_comms(COMMS)
    tracemalloc.start()
    engine.push(batch)
    held_bytes = tracemalloc.get_traced_memory()[0]
    assert held_bytes > 0.9 * n_ops * OP_DTYPE.itemsize
    for _ in range(2):
        batch["seq"] += n_ops
        batch["start_ns"] += n_ops * MS
        batch["end_ns"] += n_ops * MS
        engine.push(batch)
    left_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert broken(engine).n_ops == 131_072
    assert left_bytes < 0.01 * held_bytes
    assert len(msgspec.msgpack.encode(engine.snapshot())) < 5_000
    assert engine.state.n_held == engine.state.n_pending == 0
    tally = engine.tally
    assert tally["order_emitted"] + tally["order_dropped"] == tally["order_read"] == 3 * n_ops
