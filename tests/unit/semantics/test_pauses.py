"""Pauses that say that several found steps are one."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.semantics.parts import blocks_of
from comminsight.semantics.pauses import pause_period, period_of
from tests.unit.semantics.found_steps import comms, rows, steps

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
        # every fourth of a busy machine, but for the longest of all in a round that is not whole
        (
            [
                8.34,
                8.4,
                8.34,
                8.86,
                8.38,
                8.44,
                8.49,
                8.83,
                8.36,
                8.29,
                8.32,
                8.88,
                8.27,
                8.16,
                8.39,
                8.73,
                8.24,
                8.23,
                8.45,
                8.69,
                8.91,
                8.29,
            ],
            0,
        ),
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


def parts_of(gaps: list[str], pause_ms: float = 5.0) -> int:
    """How many blocks are a step where these gaps stand behind them (letters as in found_steps);
    a block is "gAA"."""
    batch = rows("".join("gAA" + gap for gap in [*gaps, ""]), pause_ms)
    n_between = [sum(letter.isalpha() for letter in gap) for gap in gaps]
    firsts = np.concatenate([[1], 1 + np.cumsum([3 + n for n in n_between])]).tolist()
    blocks = blocks_of(steps(batch, [(first, first + 2) for first in firsts]), batch, comms())
    assert blocks is not None
    return pause_period(blocks)


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([".", ".", ".", "~"] * 6, 4),
        (["."] * 24, 0),
        ([".", ".", ".", "~sg~"] * 6, 0),  # an evaluation has ops of its own: no evidence
        ([".", ".", "~", "sg"] * 6, 4),  # what it leaves still has a period
        ([".", ".", ".", "llll"] * 6, 0),  # ops take their time: no pause
        ([".", ".", ".", "~l"] * 6, 4),  # a loss, behind the optimizer
        ([".", ".", ".", "l~"] * 6, 4),
        ([".", ".", ".", ".l"] * 6, 0),  # a log: no longer than elsewhere
        ([".", ".", ".", "~lll"] * 6, 4),
        ([".", ".", ".", "~llll"] * 6, 0),  # more numbers than a step reduces
        ([".", ".", "~l", ".", ".", ".", ".", "~l", "~l"] * 3, 0),  # at no one distance
        (["l.", "l.", "l.", "ll~"] * 6, 4),  # a loss of each, the norm of the step
        (["l.", "l.", "l.", "l~l."] * 6, 0),  # a pause before it: an evaluation
        (["l.", "l.", "l.", "ll."] * 6, 0),
    ],
)
def test_gaps_of_one_content_are_compared(gaps: list[str], expected: int) -> None:
    assert parts_of(gaps) == expected


@pytest.mark.parametrize(("pause_ms", "expected"), [(1.01, 0), (1.05, 4)])
@pytest.mark.parametrize("gap", ["~", "~l"])
def test_by_less_than_half_a_percent_of_a_block_no_optimizer_is_done(
    gap: str, pause_ms: float, expected: int
) -> None:
    """A block and its gap take 4 ms."""
    assert parts_of([".", ".", ".", gap] * 8, pause_ms) == expected


@pytest.mark.parametrize(("marked", "expected"), [(".l~l~", 4), (".l~l.", 0)])
def test_behind_the_last_number_the_pause_must_be_longer(marked: str, expected: int) -> None:
    """By half; before it half as long again is no evaluation."""
    assert parts_of([".l.", ".l.", ".l.", marked] * 6, 1.5) == expected
