"""Pauses that say that several found steps are one."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.semantics.pauses import period_of

LOST = float("nan")  # a gap that is not compared


@pytest.mark.parametrize(
    ("gaps_ms", "expected"),
    [
        ([1, 1, 9] * 4, 3),
        ([1, 9] * 4, 2),
        ([9, 1, 1, 1, 1] * 5, 5),
        ([1, 1, 9] * 3 + [1, 9] + [1, 1, 9] * 3, 3),  # one was lost
        ([1, 1, 9] * 3, 0),  # too few rounds
        ([5, 4, 6, 5, 4, 7, 5, 4, 6, 5, 6, 4], 0),
        ([1, 1, 1.9] * 4, 0),  # longer, but not by far, and not often
        ([1, 1, 1.9] * 8, 3),
        ([1, 9, 1, 1, 9, 1, 9, 9, 1, 1, 1, 9], 0),  # no period
        ([3, 3, 5, 7] * 8, 4),  # layers: forward, backward, and the optimizer after them
        ([3, 3, 5, 7] * 3, 0),
        ([1] * 40 + [90], 0),  # a checkpoint
        ([1, 1, 1, LOST] * 10, 0),  # an evaluation, left out
        ([1, 1, 9, LOST] * 10, 4),
        ([], 0),
    ],
)
def test_the_number_of_blocks_in_a_step(gaps_ms: list[float], expected: int) -> None:
    assert period_of(np.array(gaps_ms, np.float64)) == expected


@pytest.mark.parametrize("n", [2, 4, 8, 16])
@pytest.mark.parametrize("longer", [1.2, 1.5, 3.0])
def test_longer_by_a_little_counts_when_it_is_always_so(n: int, longer: float) -> None:
    rng = np.random.default_rng(n)
    pauses = np.tile([*[1.0] * (n - 1), longer], 80 // n) * rng.lognormal(0, 0.03, 80)
    assert period_of(pauses, 0.02) == n
    assert period_of(pauses, longer) == 0  # no more than what is let pass


def test_chance_gives_no_period() -> None:
    rng = np.random.default_rng(3)
    found = [period_of(rng.lognormal(0, 0.2, 64)) for _ in range(400)]
    assert sum(n > 0 for n in found) <= 2
    slow = [period_of(rng.lognormal(0, 0.02, 300) * np.linspace(1, 1.5, 300)) for _ in range(100)]
    assert not any(slow)  # ever slower is no period
