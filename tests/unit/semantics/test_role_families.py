"""Jobs that look alike by what kinds of ops they do: each role is right or unknown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from comminsight.model.ops import CommRole
from comminsight.semantics.op_mix import op_mixes
from comminsight.semantics.role_clues import guess
from comminsight.semantics.role_inference import Place, session_clues
from tests.unit.semantics.role_families import (
    AROUND,
    EP_STYLES,
    GATHERS,
    RIGHT,
    Shape,
    random_job,
    serving,
    training,
)
from tests.unit.semantics.role_jobs import MIB, Job, Read, read

UNKNOWN = CommRole.UNKNOWN
OF_WORLD = {CommRole.GLOBAL, UNKNOWN}  # of a group of all ranks, beside another such


def told(job: Job, seed: int = 1) -> dict[str, set[CommRole]]:
    """The roles that the communicators of each group got."""
    found: dict[str, set[CommRole]] = {}
    for group, comm in read(job, seed).roles():
        found.setdefault(group, set()).add(comm.role)
    return found


def session_roles(one: Read, place: int) -> list[tuple[str, int, CommRole]]:
    """(group, size, role) by one session alone."""
    rank = one.ranks[place]
    own = [one.joined.communicators[i] for i in rank.comm_ids[1:]]
    sizes = np.array([0, *(comm.comm_size for comm in own)])
    ranks = np.array([-1, *(comm.members.index(rank.global_rank) for comm in own)])
    index = rank.ops["comm_index"].astype(np.int64)
    clues = session_clues(
        op_mixes(rank.ops, index, sizes, ranks), Place(len(one.ranks), rank.global_rank)
    )
    return [
        (one.groups[rank.comm_ids[i]], int(sizes[i]), guess(clues[i]).role) for i in sorted(clues)
    ]


def verdict(group: str, size: int, role: CommRole, world_size: int) -> str:
    """A communicator of the whole world is GLOBAL, whatever it is used for."""
    if role is UNKNOWN:
        return "unknown"
    is_world = role is CommRole.GLOBAL and size == world_size
    return "right" if role in RIGHT[group] or is_world else f"wrong: {group} is {role}"


@pytest.mark.parametrize("seeds", [range(first, first + 40) for first in range(0, 120, 40)])
@pytest.mark.parametrize("lost", [0.0, 0.01])
def test_random_jobs_get_right_roles_or_none(seeds: range, lost: float) -> None:
    joined: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for seed in seeds:
        _, job = random_job(seed)
        if not 1 < job.mesh.world_size <= 64:
            continue
        one, world_size = read(job, seed, lost=lost), job.mesh.world_size
        joined.update(
            verdict(group, comm.comm_size, comm.role, world_size) for group, comm in one.roles()
        )
        for place in (0, -1):
            alone.update(verdict(*entry, world_size) for entry in session_roles(one, place))
    for found, least in ((joined, 0.9), (alone, 0.8)):
        assert set(found) <= {"right", "unknown"}
        assert found["right"] >= least * found.total()


@pytest.mark.parametrize("style", AROUND)
@pytest.mark.parametrize("dp_style", ["ddp", "overlapped", "fsdp"])
@pytest.mark.parametrize(("tp", "kv_ratio"), [(1, 1), (2, 4)])
def test_heads_exchanged_around_attention_are_no_experts(
    style: str, dp_style: str, tp: int, kv_ratio: int
) -> None:
    shape = Shape(tp=tp, cp=4, dp=2, cp_style=style, dp_style=dp_style, kv_ratio=kv_ratio)
    found = told(training(shape))
    assert found["cp"] in ({CommRole.CP}, {UNKNOWN})
    assert found["cp"] == {CommRole.CP} or style == "spread"  # equal, with work between them
    assert found["dp"] <= RIGHT["dp"] | OF_WORLD


@pytest.mark.parametrize("style", EP_STYLES)
@pytest.mark.parametrize("dp_style", ["ddp", "dist_opt"])
@pytest.mark.parametrize("tp", [1, 2])
def test_tokens_exchanged_with_experts_are_no_heads(style: str, dp_style: str, tp: int) -> None:
    found = told(training(Shape(tp=tp, ep=4, dp=2, ep_style=style, dp_style=dp_style)))
    assert found["ep"] == {CommRole.EP}
    assert found["edp"] == {CommRole.EDP}
    assert found["dp"] <= RIGHT["dp"] | OF_WORLD


@pytest.mark.parametrize("style", GATHERS)
@pytest.mark.parametrize("dp_style", ["ddp", "overlapped", "dist_opt", "fsdp", "prefetched"])
@pytest.mark.parametrize("is_serial", [True, False])
@pytest.mark.parametrize(("tp", "dp"), [(1, 2), (2, 2), (2, 1)])
def test_keys_and_values_gathered_are_no_parameters(
    style: str, dp_style: str, is_serial: bool, tp: int, dp: int
) -> None:  # fmt: skip
    shape = Shape(tp=tp, cp=2, dp=dp, cp_style=style, dp_style=dp_style, is_serial=is_serial)
    found = told(training(shape))
    assert found["cp"] <= ({CommRole.CP} if dp > 1 else {CommRole.CP, UNKNOWN})
    assert found["dp"] <= RIGHT["dp"] | (set() if min(tp, dp) > 1 else OF_WORLD)


@pytest.mark.parametrize("buckets", [1, 8, 64])
@pytest.mark.parametrize("dp_style", ["ddp", "overlapped"])
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("is_serial", [True, False])
def test_many_equal_buckets_are_no_activations(
    buckets: int, dp_style: str, layers: int, is_serial: bool
) -> None:  # fmt: skip
    shape = Shape(
        tp=2, dp=4, buckets=buckets, dp_style=dp_style, layers=layers, is_serial=is_serial
    )
    found = told(training(shape))
    assert found["tp"] <= {CommRole.TP, UNKNOWN}
    assert found["dp"] <= {CommRole.DP, UNKNOWN}
    if buckets == 64:
        assert found["dp"] == {CommRole.DP}


@pytest.mark.parametrize("world_style", ["silent", "barrier", "scalar", "numbers"])
@pytest.mark.parametrize("buckets", [1, 4, 64])
@pytest.mark.parametrize("dp_style", ["ddp", "overlapped", "dist_opt"])
@pytest.mark.parametrize("metric_bytes", [0, 2_048])
def test_numbers_over_the_world_make_no_activations_of_gradients(
    world_style: str, buckets: int, dp_style: str, metric_bytes: int
) -> None:
    shape = Shape(
        dp=4, replicas=2, world_style=world_style, buckets=buckets, dp_style=dp_style,
        metric_bytes=metric_bytes,
    )  # fmt: skip
    assert told(training(shape))["dp"] <= {CommRole.DP, UNKNOWN}


def test_replicas_that_serve_are_told_from_gradients_with_a_gathered_number() -> None:
    found = told(serving(tp=2, replicas=2, layers=4, steps=12, prefill_every=0))
    assert found == {"tp": {CommRole.TP}}


def test_the_same_members_twice_are_not_told_by_their_numbers() -> None:
    """Shards of parameters, and keys and values, over the same ranks: nothing tells which."""
    shape = Shape(tp=2, cp=2, cp_style="regather", dp_style="fsdp", hidden_bytes=12 * MIB)
    assert told(training(shape))["cp"] <= {CommRole.CP, UNKNOWN}
    wide = told(training(replace(shape, dp=2)))
    assert wide["cp"] == {CommRole.CP}
    assert wide["dp"] <= RIGHT["dp"]
