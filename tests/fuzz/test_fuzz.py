"""200,000 wrong inputs in every run of the tests; ``make fuzz`` goes on as long as it is told."""

from __future__ import annotations

import time

import pytest

from tests.fuzz.fuzz import MAX_GROWTH_MIB, fuzz, table
from tests.fuzz.targets import TARGETS

N_INPUTS = 200_000
MAX_CPU_S = 60.0
SLACK = 3.0  # a busy machine is slower


@pytest.mark.slow
def test_no_input_ends_in_anything_but_an_input_error(capsys: pytest.CaptureFixture[str]) -> None:
    begin_s = time.process_time()
    outcome = fuzz(N_INPUTS, seed=20)
    spent_s = time.process_time() - begin_s
    with capsys.disabled():
        print(f"\n{table(outcome)}, {spent_s:.0f} s")
    assert sum(outcome.n_inputs.values()) == N_INPUTS
    assert outcome.growth_mib < MAX_GROWTH_MIB
    assert spent_s < SLACK * MAX_CPU_S
    for target in TARGETS:  # both ways are taken: some inputs are still good, some are refused
        assert outcome.n_read[target.name] > outcome.n_inputs[target.name] // 100
    assert sum(outcome.n_read.values()) < N_INPUTS // 2
