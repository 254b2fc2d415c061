"""FSDP2 with most parameters frozen, and with something reduced in every layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comminsight.model.step import PhaseKind
from comminsight.sim import (
    SimLayout,
    fsdp2_accumulated_layout,
    fsdp2_frozen_layout,
    simulate,
    tensor_layout,
)
from tests.unit.semantics.schedules import found_bounds, found_on, true_bounds
from tests.unit.semantics.shipped import shipped_templates

TEMPLATES = shipped_templates()
STEPS = 20
FROZEN = {
    "last trained": tuple(range(7)),
    "last two trained": tuple(range(6)),
    "last three trained": tuple(range(5)),
    "first trained": tuple(range(1, 8)),
    "two in the middle trained": (0, 1, 2, 5, 6, 7),
    "every other trained": (0, 2, 4, 6),
    "others trained": (1, 3, 5, 7),
    "one of three trained": (0, 1, 3, 4, 6, 7),
}
TWICE = ("last two trained", "last three trained", "two in the middle trained")
SUMS = fsdp2_accumulated_layout(4, microbatches=1)


def check(layout: SimLayout, template: str) -> None:
    run = simulate(layout, steps=STEPS, seed=7)
    for rank in (run.ranks[0], run.ranks[-1]):
        found = found_on(rank, TEMPLATES)
        assert found.template == template
        assert found_bounds(found.steps) == (true_bounds(rank) if template else [])
        told = {phase.kind for step in found.steps for phase in step.phases}
        if layout.frozen:  # forward and backward passes gather alike, and scatter few units
            assert not told & {PhaseKind.FORWARD, PhaseKind.BACKWARD}


@pytest.mark.parametrize("n_microbatches", [1, 3])
@pytest.mark.parametrize("name", FROZEN)
def test_frozen_layers_scatter_nothing(name: str, n_microbatches: int) -> None:
    layout = replace(fsdp2_frozen_layout(4, FROZEN[name]), microbatches=n_microbatches)
    check(layout, "fsdp2")


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_and_unclipped_needs_two_scatters_in_a_row(name: str) -> None:
    layout = fsdp2_frozen_layout(4, FROZEN[name], has_clipping=False)
    check(layout, "fsdp2-unclipped" if name in TWICE else "")


@pytest.mark.parametrize("layers", [4, 7])
@pytest.mark.parametrize("size_bytes", [4, 64, 4096, 65_536])
def test_a_sum_in_every_layer_is_no_tensor_parallelism(size_bytes: int, layers: int) -> None:
    check(replace(SUMS, layer_reduce_bytes=size_bytes, layers=layers), "fsdp2-layer-sums")


def test_a_sum_in_every_layer_and_no_norm_gives_no_steps() -> None:
    check(replace(SUMS, layer_reduce_bytes=4096, has_clipping=False), "")


@pytest.mark.parametrize("tp", [2, 4])
def test_sequence_parallelism_scatters_in_turns(tp: int) -> None:
    check(tensor_layout(tp, has_sequence_parallel=True), "tp-sp")
