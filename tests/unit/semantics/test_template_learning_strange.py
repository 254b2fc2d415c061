"""Frameworks that are made up here and have no template: what is learnt from their ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import DType, Op, OpState, RecordKind
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.period import RankStream
from comminsight.semantics.template_learning import learn_template
from comminsight.sim import Schedule, SimLayout, SimRun, megatron_layout, schedules, simulate
from comminsight.sim.program import Phase, ProgramWriter
from tests.builders import comm_row, comm_rows, identity
from tests.unit.semantics.learning import learn, reloaded
from tests.unit.semantics.schedules import found_bounds, found_on, true_bounds
from tests.unit.semantics.shipped import shipped_templates

KIB, MIB = 1 << 10, 1 << 20
SHIPPED = shipped_templates()
Writer = Callable[[ProgramWriter], None]


def parameter_server(writer: ProgramWriter) -> None:
    """The root hands out parameters, takes in gradients of changing size, and says how it goes."""
    for part in range(3):
        writer.call("world", Op.BROADCAST, (part + 1) * MIB, peer=0)
    for part in range(3):
        writer.work(3_000_000, Phase.BACKWARD)
        writer.call("world", Op.REDUCE, (3 - part) * MIB, peer=0)
    writer.call("world", Op.GATHER, 16, peer=0)


def gossip(writer: ProgramWriter) -> None:
    """Tensor parallel layers by all-to-all; weights go to the next replica, never reduced; the
    ranks vote on each step. The first of each tensor parallel group has more to do."""
    writer.call("tp", Op.BROADCAST, 4 * KIB, dtype=DType.INT64, peer=0)
    for _ in range(5):
        writer.work(1_000_000, Phase.FORWARD)
        writer.call("tp", Op.ALL_TO_ALL, 64 * KIB)
        writer.call("tp", Op.ALL_TO_ALL, 64 * KIB)
    n, own = writer.size("dp"), writer.comm_rank("dp")
    sent = writer.issue("dp", Op.SEND, 2 * MIB, peer=(own + 1) % n)
    writer.call("dp", Op.RECV, 2 * MIB, peer=(own - 1) % n)
    writer.wait(sent)
    writer.call("world", Op.ALL_GATHER, 8, dtype=DType.INT64)
    if writer.comm_rank("tp") == 0:
        writer.call("dp", Op.BROADCAST, 32, peer=0)


def opened_by_a_number(writer: ProgramWriter) -> None:
    """The ranks count their tokens first; nothing else is small, nothing is reduced over all."""
    writer.call("world", Op.ALL_REDUCE, 8, dtype=DType.INT64)
    for _ in range(4):
        writer.work(2_000_000, Phase.FORWARD)
        writer.call("tp", Op.ALL_GATHER, 128 * KIB)
    for _ in range(4):
        writer.work(4_000_000, Phase.BACKWARD)
        writer.call("tp", Op.REDUCE_SCATTER, 512 * KIB)
    writer.call("dp", Op.ALL_REDUCE, 4 * MIB)


def run_of(
    monkeypatch: pytest.MonkeyPatch, write: Writer, layout: SimLayout, steps: int = 12
) -> SimRun:
    monkeypatch.setitem(schedules._WRITERS, Schedule.MEGATRON, write)
    return simulate(layout, steps=steps, seed=3)


@pytest.mark.parametrize("write", [parameter_server, gossip, opened_by_a_number])
@pytest.mark.parametrize("layout", [megatron_layout(2, 1, 4), megatron_layout(4, 1, 4)])
def test_the_steps_are_right_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, write: Writer, layout: SimLayout
) -> None:
    run = run_of(monkeypatch, write, layout)
    template = reloaded(learn(run))
    for rank in run.ranks:
        found = found_on(rank, (*SHIPPED, template))
        assert found.template == "learned"
        firsts = [first for first, _ in found_bounds(found.steps)]
        assert firsts == [first for first, _ in true_bounds(rank)]


def test_no_shipped_template_gives_these_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for write in (parameter_server, gossip):
        rank = run_of(monkeypatch, write, megatron_layout(2, 1, 4)).ranks[0]
        assert found_on(rank, SHIPPED).template == ""


def test_the_vote_of_all_ranks_is_the_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    told = learn(run_of(monkeypatch, gossip, megatron_layout(2, 1, 4))).learning
    assert told.anchor == "all_gather@GLOBAL >=8B <=8B int64"
    assert told.opens == "broadcast@TP"
    assert told.n_groups == 1


def test_a_step_with_a_log_now_and_then_looks_like_microbatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients every time, a number every third time: either may be the step."""

    def write(writer: ProgramWriter) -> None:
        for _ in range(3):
            for size in (3 * MIB, 2 * MIB, MIB, 4 * MIB):
                writer.work(1_000_000, Phase.BACKWARD)
                writer.call("world", Op.ALL_REDUCE, size)
        writer.call("world", Op.ALL_REDUCE, 4)

    learned = learn(run_of(monkeypatch, write, megatron_layout(1, 1, 4)))
    told = learned.learning
    assert learned.template is None
    assert told.refusal is not None
    assert (told.refusal.code, told.refusal.params) == (
        "learning.competing", {"n": 36, "n_outer": 12}
    )  # fmt: skip
    assert {p.n_times for p in told.periods if p.standing == "competes"} == {36, 12}


def test_what_recurs_at_the_beginning_only_is_a_set_up(monkeypatch: pytest.MonkeyPatch) -> None:

    def write(writer: ProgramWriter) -> None:
        for _ in range(6):
            writer.call("world", Op.BROADCAST, 2 * MIB, peer=0)
            writer.call("world", Op.BROADCAST, 4 * KIB, peer=0)
        for _ in range(40):
            writer.call("world", Op.ALL_REDUCE, MIB)

    told = learn(run_of(monkeypatch, write, megatron_layout(1, 1, 4), steps=1)).learning
    assert told.refusal is not None
    assert told.refusal.code == "learning.ends_early"


def test_noise_is_hardly_ever_taken_for_a_job() -> None:
    """200 streams of random ops, the same on two ranks; short ones may repeat by chance."""
    generator = np.random.default_rng(5)
    proposed = [noise for noise in range(200) if learn_template(noise_of(generator), "x").template]
    assert len(proposed) <= 2


def noise_of(generator: np.random.Generator) -> list[RankStream]:
    n = int(generator.choice([30, 60, 120, 300]))
    n_kinds = int(generator.integers(2, 7))
    weights = generator.random(n_kinds) ** 2 + 0.02
    kinds = generator.choice(n_kinds, size=n, p=weights / weights.sum())
    rows = np.zeros(n, OP_DTYPE)
    rows["kind"], rows["state"], rows["comm_index"] = RecordKind.COLLECTIVE, OpState.DONE, 1
    rows["op"] = generator.integers(Op.ALL_REDUCE, Op.SEND, n_kinds)[kinds]
    rows["size_bytes"] = generator.choice([4, 256, 65_536, MIB], n_kinds)[kinds]
    for field in ("seq", "op_seq", "match_seq"):
        rows[field] = np.arange(1, n + 1)
    rows["start_ns"], rows["end_ns"] = rows["seq"] * 1000, rows["seq"] * 1000 + 900
    streams = []
    for rank in range(2):
        comms = CommTable(2)
        comms.add(comm_rows(comm_row(1, [0, 1], rank, name=b"0", desc=b"default_pg")))
        streams.append(RankStream(identity(rank, 2), rows, comms, np.array([-1, 0])))
    return streams
