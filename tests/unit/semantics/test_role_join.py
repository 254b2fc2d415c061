"""Roles and layouts of whole simulated jobs without names, against the same jobs with names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from comminsight.model.layout import LayoutProblem
from comminsight.model.ops import CommRole
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace
from comminsight.semantics.parallel_layout import RankCoordinates, parallel_layout
from comminsight.semantics.role_join import JoinedRoles, join_roles
from comminsight.sim import (
    LostRecords,
    SimLayout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    run_trace,
    serving_ep_layout,
    simulate,
)
from tests.unit.semantics.schedules import JOBS, with_sp

LARGE = {
    "tp2-cp4-dp2-pp2": megatron_core_layout(2, 2, 8, cp=4, ep=4, has_dist_opt=True),
    "tp8-dp2-pp4": with_sp(megatron_core_layout(8, 4, 2, has_dist_opt=True)),
    "tp4-dp4-pp4": megatron_layout(4, 4, 4),
    "dp8-pp8": megatron_core_layout(1, 8, 8),
    "tp8-dp8": megatron_layout(8, 1, 8),
    "dp64": moe_layout(64, 8),
    "tp4-dp16": serving_ep_layout(4, 16),
}


def without_names(communicators: tuple[Communicator, ...], world_size: int) -> list[Communicator]:
    """What the catalog knows of communicators of the plugin alone."""
    return [
        msgspec.structs.replace(
            comm, name="", desc="", is_role_inferred=True,
            role=CommRole.GLOBAL if comm.comm_size == world_size else CommRole.UNKNOWN,
        )
        for comm in communicators
    ]  # fmt: skip


def read(layout: SimLayout, *, lost: float = 0.0) -> tuple[RunTrace, JoinedRoles, RankCoordinates]:
    """The job with names, and what is made of it without them."""
    faults = [LostRecords(rank=-1, fraction=lost)] if lost else []
    trace = run_trace(simulate(layout, steps=4, seed=3, faults=faults))
    joined = join_roles(
        without_names(trace.communicators, layout.world_size), trace.ranks, layout.world_size
    )
    return trace, joined, coordinates(joined, layout)


def coordinates(joined: JoinedRoles, layout: SimLayout) -> RankCoordinates:
    return parallel_layout(
        joined.communicators, layout.world_size, joined.world_purpose,
        n_undecided=len(joined.undecided),
    )  # fmt: skip


def true_coordinates(layout: SimLayout, rank: int) -> dict[str, int]:
    place = layout.place(rank)
    return {
        "tp": place.tp, "pp": place.pp, "cp": place.dp % layout.cp, "dp": place.dp // layout.cp,
        "ep": place.dp % layout.ep,
    }  # fmt: skip


def used(trace: RunTrace) -> set[int]:
    found = [np.unique(rank.comm_ids_of(rank.ops["comm_index"])) for rank in trace.ranks]
    return set(np.concatenate(found).tolist())


@pytest.mark.parametrize("order", LARGE)
def test_a_large_job_without_names_gets_its_roles_and_its_layout(order: str) -> None:
    layout = LARGE[order]
    trace, joined, found = read(layout)
    pairs = zip(joined.communicators, trace.communicators, strict=True)
    own = [(a, b) for a, b in pairs if a.comm_id in used(trace)]
    assert Counter(a.role is b.role for a, b in own) == {True: len(own)}
    assert all(a.role_evidence and 0.5 <= a.role_confidence < 1 for a, _ in own)
    assert found.layout.order == order
    assert found.layout.is_complete
    assert found.by_rank == {
        rank: {name: true_coordinates(layout, rank)[name] for name in coords}
        for rank, coords in found.by_rank.items()
    }
    assert len(found.by_rank) == layout.world_size


@pytest.mark.parametrize("name", JOBS)
def test_no_job_gets_a_wrong_role(name: str) -> None:
    layout = JOBS[name].layout
    trace, joined, found = read(layout)
    wrong = [
        (a.role, b.role)
        for a, b in zip(joined.communicators, trace.communicators, strict=True)
        if a.comm_id in used(trace) and a.role not in {b.role, CommRole.UNKNOWN}
    ]
    assert wrong == []
    for rank, coords in found.by_rank.items():
        assert coords == {name: true_coordinates(layout, rank)[name] for name in coords}


def test_names_and_inference_give_the_same_layout() -> None:
    layout = megatron_core_layout(2, 2, 4, cp=2)
    trace, _, found = read(layout)
    named = coordinates(join_roles(trace.communicators, trace.ranks, 16), layout)
    assert found.by_rank == named.by_rank
    assert {d.is_inferred for d in named.layout.dimensions} == {False}
    assert {d.is_inferred for d in found.layout.dimensions} == {True}


def test_what_only_the_other_dimension_tells_is_left_open() -> None:
    """As many tensor parallel ops in a step as gradient buckets: only their overlap tells."""
    layout = replace(megatron_layout(2, 1, 2, microbatches=1), layers=1)
    trace, joined, found = read(layout)
    roles = {b.role: a.role for a, b in zip(joined.communicators, trace.communicators, strict=True)}
    assert roles[CommRole.DP] is CommRole.DP
    assert roles[CommRole.TP] is CommRole.UNKNOWN
    assert len(joined.undecided) == 2
    assert found.layout.problem is LayoutProblem.FACTOR_MISSING
    assert found.by_rank[3] == {"dp": 1}


def test_lost_records_make_roles_unknown_rather_than_wrong() -> None:
    layout = megatron_core_layout(2, 2, 4, cp=2, ep=2, has_dist_opt=True)
    trace, joined, found = read(layout, lost=0.01)
    own = [
        (a.role, b.role)
        for a, b in zip(joined.communicators, trace.communicators, strict=True)
        if a.comm_id in used(trace)
    ]
    assert [pair for pair in own if pair[0] not in {pair[1], CommRole.UNKNOWN}] == []
    assert sum(a is b for a, b in own) >= 0.8 * len(own)
    assert found.layout.problem is not LayoutProblem.CONTRADICTION
