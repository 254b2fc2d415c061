"""Roles that no name tells: simulated jobs without their names, and ops made by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comminsight.model.ops import CommRole
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.op_mix import op_mixes
from comminsight.semantics.role_clues import RoleGuess, guess
from comminsight.semantics.role_inference import Place, session_clues
from comminsight.sim import SimRank, simulate
from tests.builders import allreduce, ops, recv, send
from tests.unit.semantics.schedules import JOBS, found_bounds, found_on
from tests.unit.semantics.shipped import shipped_templates
from tests.unit.semantics.snapshots import carried

TEMPLATES = shipped_templates()
# of one group that is the world, or of one kind of group with nothing but reductions
SPANS = ("serving", "tp", "tp sp", "tp, two jobs", "tp pp, a number per microbatch")


def nameless(rank: SimRank) -> SimRank:
    """The rank, its communicators without names."""
    rank.comms["name"], rank.comms["desc"] = b"", b""
    return rank


def guesses(rank: SimRank) -> dict[int, RoleGuess]:
    """What one session alone tells of its communicators, by ``comm_index``."""
    rows = rank.records[np.argsort(rank.records["start_ns"], kind="stable")]
    sizes, ranks = (np.append(0, rank.comms[name]) for name in ("comm_size", "comm_rank"))
    mixes = op_mixes(rows, rows["comm_index"].astype(np.int64), sizes, ranks)
    place = Place(rank.session.world_size, rank.session.global_rank)
    return {index: guess(own) for index, own in session_clues(mixes, place).items()}


@pytest.mark.parametrize("name", sorted(set(JOBS) - set(SPANS)))
def test_one_session_tells_its_roles_or_abstains(name: str) -> None:
    run = simulate(JOBS[name].layout, steps=6, seed=3)
    seen = []
    for rank in (run.ranks[0], run.ranks[-1]):
        groups = [g for g in run.groups if rank.session.global_rank in g.members]
        seen += [(groups[i - 1].role, own) for i, own in guesses(rank).items()]
    assert [(role, own) for role, own in seen if own.role not in {role, CommRole.UNKNOWN}] == []
    assert sum(own.role is role for role, own in seen) >= 0.75 * len(seen)
    assert all(0.5 <= own.confidence < 1 and own.evidence for role, own in seen if own.role is role)


@pytest.mark.parametrize("name", ["megatron, sp, dist opt", "megatron, cp pp", "tp pp dp", "ddp"])
def test_a_job_without_names_gets_the_steps_of_the_job_with_names(name: str) -> None:
    run = simulate(JOBS[name].layout, steps=8, seed=5)
    for rank in (run.ranks[0], run.ranks[-1]):
        named = found_on(rank, TEMPLATES)
        unnamed = found_on(nameless(rank), TEMPLATES)
        assert named.steps
        assert unnamed.template == named.template
        assert found_bounds(unnamed.steps) == found_bounds(named.steps)


def test_inferred_roles_do_not_depend_on_the_chunks_and_survive_a_snapshot() -> None:
    run = simulate(JOBS["megatron, tp pp ep"].layout, steps=8, seed=2)
    rank = nameless(run.ranks[-1])
    whole = found_on(rank, TEMPLATES).steps
    assert [step.anchor.role for step in whole if step.anchor] == ["GLOBAL"] * 8
    for size in (7, 250):
        engine = SessionEngine(TEMPLATES, identity=rank.session)
        steps = []
        for first in range(0, len(rank.records), size):
            engine.add_comms(rank.comms)
            steps += engine.push(rank.records[first : first + size])
            engine = SessionEngine.resume(carried(engine), TEMPLATES)
        assert (*steps, *engine.finish()) == tuple(whole)


def test_equal_mixes_stay_unknown() -> None:
    """Two groups of two with the same ops: which is TP and which DP cannot be told."""
    rows = ops(*(allreduce(i + 1, 2 * i, comm=1 + i % 2) for i in range(40)))
    mixes = op_mixes(
        rows, rows["comm_index"].astype(np.int64), np.array([0, 2, 2]), np.array([-1, 0, 0])
    )
    clues = session_clues(mixes, Place(4, 0))
    assert {guess(own).role for own in clues.values()} == {CommRole.UNKNOWN}


def pair_role(calls: str) -> CommRole:
    """The role of two ranks that send (s) and receive (r), calls 10 ms apart, "b" both at once."""
    rows: list[np.ndarray] = []
    for place, call in enumerate(calls):
        for make in {"s": [send], "r": [recv], "b": [send, recv]}[call]:
            rows.append(make(len(rows) + 1, 10 * place + 1, comm=1, peer=1))
    mixes = op_mixes(ops(*rows), np.ones(len(rows), np.int64), np.array([0, 2]), np.array([-1, 0]))
    return guess(session_clues(mixes, Place(4, 0))[1]).role


@pytest.mark.parametrize(
    ("calls", "role"),
    [
        ("ssrsrsrr" * 2, CommRole.PP),
        ("sbbbr" * 3, CommRole.PP),  # the last stage, or the first one of 1F1B in batches
        ("b" * 16, CommRole.CP),
        ("b" * 60 + "s", CommRole.CP),  # one record was lost
        ("bb", CommRole.UNKNOWN),  # too few to tell
    ],
)
def test_a_pipeline_sends_alone_and_a_ring_never_does(calls: str, role: CommRole) -> None:
    assert pair_role(calls) is role


def fans(n: int, sizes: Callable[[int], int]) -> np.ndarray:
    """Group calls of rank 2 of 4 to all members, the ``n``-th of ``sizes(n)`` bytes."""
    calls: list[np.ndarray] = []
    for group in range(1, n + 1):
        for peer in range(4):
            for make in (send, recv):
                calls.append(
                    make(
                        len(calls) + 1, 3 * group, comm=1, peer=peer, group_id=group,
                        size=sizes(group),
                    )
                )  # fmt: skip
    return ops(*calls)


@pytest.mark.parametrize(
    ("sizes", "role"),
    [
        (lambda group: 4096 * (7 + group * 37 % 11), CommRole.EP),
        (lambda _: 1 << 20, CommRole.EP),  # and as much computed between any two
    ],
)
def test_a_group_call_to_all_is_an_exchange(sizes: Callable[[int], int], role: CommRole) -> None:
    rows = fans(12, sizes)
    (mix,) = op_mixes(rows, np.ones(len(rows), np.int64), np.array([0, 4]), np.array([-1, 2]))
    assert mix.n_exchanges == 12
    assert mix.exchanges.sizes.tolist() == [4 * sizes(group) for group in range(1, 13)]
    assert not mix.has_p2p
    assert guess(session_clues([mix], Place(8, 2))[1]).role is role
