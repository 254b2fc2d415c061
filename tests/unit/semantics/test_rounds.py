"""Steps of a sharded job that are several: only every nth ends with what closes them.

Letters as in found_steps. A round is "ggg.ss", with "." of own work between two; a log is "l".
"""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.semantics.rounds import look_like_several
from tests.unit.semantics.found_steps import even, rows, steps

TWO = "ggg.ss.ggg.ss"  # 10 ops
FOUR = f"{TWO}.{TWO}"


def several(letters: str, n_ops: int, pause_ms: float = 5.0) -> bool:
    """Whether all stretches of so many ops look like several steps."""
    batch = rows(letters, pause_ms)
    return look_like_several(steps(batch, even(len(batch) // n_ops, n_ops)), batch)


@pytest.mark.parametrize(
    ("letters", "n_ops", "expected"),
    [
        (f"{TWO}l~" * 8, 11, False),  # microbatches: the optimizer behind the second
        (f"{TWO}~l" * 8, 11, False),  # the same, before its loss
        (f"{TWO}l." * 8, 11, True),  # no longer behind the second: two steps and a log
        ("ggg.ss~ggg.ssl~" * 8, 11, True),  # as long behind both
        ("ggg.ss~ggg.ssl." * 8, 11, True),  # longer within
        (f"{TWO}~{TWO}~l" * 24, 21, True),  # pauses with a period: two steps of two, and a log
        (f"{FOUR}l~" * 8, 21, False),
        (f"{FOUR}l." * 8, 21, True),
        ("ggg.ssl." * 8, 6, False),  # one round each: nothing to ask
        ("gg.ss.gg.ssl." * 8, 9, False),  # two gathers are no forward pass
        (f"{TWO}l.", 11, False),
        (f"{TWO}.ggg.ssl.", 16, False),  # one step, nothing behind it to compare with
        (f"{TWO}l." * 2, 11, True),
        ("ggg.ggg." * 8, 6, False),  # nothing is scattered
        ("", 1, False),
    ],
)
def test_the_pause_behind_a_step_is_longer_than_within(
    letters: str, n_ops: int, *, expected: bool
) -> None:
    assert several(letters, n_ops) is expected


@pytest.mark.parametrize(
    ("n_steps", "pause_ms", "expected"),
    [(3, 1.2, True), (3, 1.4, False), (4, 1.2, True), (4, 1.4, False), (5, 1.2, False)],
)
def test_few_pauses_must_be_longer_by_far(n_steps: int, pause_ms: float, *, expected: bool) -> None:
    """By a quarter than the 1 ms within; behind the last step is none."""
    assert several(f"{TWO}l~" * n_steps, 11, pause_ms) is expected


@pytest.mark.parametrize(("pause_ms", "expected"), [(1.03, True), (1.05, False)])
def test_half_a_percent_of_a_round_is_no_optimizer(pause_ms: float, *, expected: bool) -> None:
    """A round takes 7 ms, the pause within a step 1 ms."""
    assert several(f"{TWO}l~" * 12, 11, pause_ms) is expected


@pytest.mark.parametrize(("n_of_two", "expected"), [(7, False), (8, True), (16, True)])
def test_most_steps_must_have_several_rounds(n_of_two: int, *, expected: bool) -> None:
    """Of sixteen steps."""
    bounds = [(11 * step + 1, 11 * step + 11) for step in range(n_of_two)]
    done = 11 * n_of_two
    bounds += [(done + 6 * step + 1, done + 6 * step + 6) for step in range(16 - n_of_two)]
    batch = rows(f"{TWO}l." * n_of_two + "ggg.ssl." * (16 - n_of_two))
    assert look_like_several(steps(batch, bounds), batch) is expected


def test_a_long_op_between_two_rounds_is_no_pause() -> None:
    batch = rows(f"{TWO}l." * 8)
    for place in range(10, len(batch), 11):  # the log takes 50 ms more
        batch["start_ns"][place + 1 :] += 50_000_000
        batch["end_ns"][place:] += 50_000_000
    assert look_like_several(steps(batch, even(8, 11)), batch)


def test_a_lost_scatter_changes_nothing() -> None:
    for letters, expected in ((f"{TWO}l~" * 12, False), (f"{TWO}l." * 12, True)):
        whole = rows(letters)
        batch = np.delete(whole, [3, 37, 70])
        assert look_like_several(steps(whole, even(12, 11)), batch) is expected


def test_a_lost_first_gather_of_a_step_takes_its_pause_away_and_no_more() -> None:
    for letters, expected in ((f"{TWO}l~" * 12, False), (f"{TWO}l." * 12, True)):
        whole = rows(letters)
        batch = np.delete(whole, 44)  # of the fifth step
        assert look_like_several(steps(whole, even(12, 11)), batch) is expected
