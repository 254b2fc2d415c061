"""Wrong inputs to the readers of profilers other than PyTorch's: only InputError comes out."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import mutation
from tests.fuzz.profiler_targets import (
    ascend_files,
    databases,
    inspector_files,
    read_ascend,
    read_database,
    read_lines,
)
from tests.fuzz.targets import Target, run

N_INPUTS = 1500
TARGETS = (
    Target("Ascend", read_ascend, ascend_files(), mutation.JSON + mutation.TEXT, 1),
    Target("Inspector", read_lines, inspector_files(), mutation.JSON + mutation.TEXT, 1),
    Target("database", read_database, databases(), mutation.ANY, 1),
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_ends_in_anything_but_an_input_error(target: Target) -> None:
    rng = random.Random(7)
    for seed in target.seeds[:1] if target.name != "Ascend" else ():
        assert run(target, seed, rng)
    n_read = sum(
        run(target, mutation.mutated(rng, target.seeds, target.kinds), rng) for _ in range(N_INPUTS)
    )
    assert n_read < N_INPUTS  # some are refused
