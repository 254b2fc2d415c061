"""Blocks of ops, and what they hold that makes them parts of a step; letters as in found_steps."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import numpy as np
import pytest

from comminsight.model.ops import DType
from comminsight.semantics.parts import (
    UNKNOWN_PERIOD,
    Blocks,
    blocks_of,
    content_period,
)
from tests.builders import comm_row
from tests.unit.semantics.found_steps import comms, even, rows, steps


def blocks(contents: list[str]) -> Blocks | None:
    """A block of each content, and one more behind them that is not looked at."""
    all_of = [*contents, "g"]
    ends = list(accumulate(map(len, all_of)))
    batch = rows("".join(all_of))
    bounds = [(end - len(one) + 1, end) for one, end in zip(all_of, ends, strict=True)]
    return blocks_of(steps(batch, bounds), batch, comms())


def period(contents: list[str], *, is_iteration: bool = False) -> int:
    found = blocks(contents)
    assert found is not None
    return content_period(found, is_iteration=is_iteration)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["gA"] * 20, 0),  # all alike
        (["gA", "AA"] * 10, 2),  # two kinds in turn, none is more than half
        (["AAg", "gAA"] * 10, 0),  # the order is no content
        (["gA", "gB"] * 10, 2),  # of what is reduced the size counts
        (["gs", "gA", "AA"] * 8, 3),
        (["gA", "AA"] * 4, 2),  # four rounds are enough
        ([*["gA", "AA"] * 5, "gA", "gs"], 2),  # one in ten is unlike the one a period before
        ([*["gA", "AA"] * 5, "gs"], 0),  # one in nine
        (["gA", "gA", "gA", "gl"] * 8, 4),  # gradients in three of four blocks only
        (["gA", "gA", "gA", "gAl"] * 8, 0),  # one kind, with a log every few: no evidence
        (["gA"] * 20 + ["AA"] * 20, 0),  # changed once
        (["gs", "gA", "AA"] * 8 + ["gA", "AA"] + ["gs", "gA", "AA"] * 8, 3),  # one block lost
        (["gA", "AA"] * 10 + ["gA"], 0),  # one more than half of one kind
        (["gA"] * 12 + ["gg"] + ["gA"] * 12, 0),  # one odd block
    ],
)
def test_what_blocks_hold_tells_how_many_are_a_step(contents: list[str], expected: int) -> None:
    assert period(contents) == expected


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["gA", "gB"] * 10, 0),  # sizes follow the batch
        (["AAg", "AAAAg"] * 10, 2),  # a small model and a large one
        (["AAg", "AAg", "AAg", "AAAAg"] * 8, 4),
        (["AAg"] * 16 + ["AAAAg"] * 4, UNKNOWN_PERIOD),  # a fifth of them another model, no turn
        (["AAg"] * 17 + ["AAAAg"] * 4, 0),  # less than a fifth
        (["AAg"] * 6 + ["AAAAg"] * 3, 0),  # a third, but three times only
    ],
)
def test_iterations_of_one_model_are_all_alike(contents: list[str], expected: int) -> None:
    assert period(contents, is_iteration=True) == expected


@pytest.mark.parametrize(("n", "expected"), [(64, 64), (65, 0)])
def test_the_longest_step(n: int, expected: int) -> None:
    assert period(["g" * (1 + i) for i in range(n)] * 4, is_iteration=True) == expected


@pytest.mark.parametrize(("n", "is_enough"), [(0, False), (1, False), (8, False), (9, True)])
def test_so_many_steps_it_takes_to_tell(n: int, *, is_enough: bool) -> None:
    batch = rows("gA" * max(n, 1))
    assert (blocks_of(steps(batch, even(n, 2)), batch, comms()) is not None) is is_enough


@pytest.mark.parametrize(
    ("place", "first", "last"),
    [
        (4, 90, 91),  # ops that are not among these
        (0, 1, 3),  # into the next one
        (0, 2, 1),  # backwards
        (8, 1, 2),  # not in order
    ],
)
def test_steps_that_their_ops_do_not_tell_are_not_judged(place: int, first: int, last: int) -> None:
    batch = rows("gA" * 9)
    found = steps(batch, even(9, 2))
    assert blocks_of(found, batch, comms()) is not None
    found[place] = msgspec.structs.replace(found[place], first_seq=first, last_seq=last)
    assert blocks_of(found, batch, comms()) is None


def test_a_lost_record_between_two_steps_shifts_none() -> None:
    batch = np.delete(rows("gAl" * 12), 5)  # the loss behind the second step
    found = blocks_of(steps(rows("gAl" * 12), even(12, 2, 1)), batch, comms())
    assert found is not None
    assert found.first.tolist()[:4] == [0, 3, 5, 8]
    assert found.gap_sums(np.ones(len(batch), np.int64)).tolist() == [1, 0] + [1] * 9
    assert found.sums(np.ones(len(batch), np.int64)).tolist() == [2] * 11


def test_a_lost_first_record_of_a_step_leaves_it_unjudged() -> None:
    batch = np.delete(rows("gA" * 12), 4)
    assert blocks_of(steps(rows("gA" * 12), even(12, 2)), batch, comms()) is None


def test_ops_in_the_order_of_their_start_keep_their_numbers() -> None:
    batch = rows("gA" * 10)
    found = blocks_of(steps(batch, even(10, 2)), batch, comms())
    batch["seq"][[0, 1]] = batch["seq"][[1, 0]]  # recorded when complete, the second first
    swapped = blocks_of(steps(batch, [(2, 1), *even(10, 2)[1:]]), batch, comms())
    assert found is not None
    assert swapped is not None
    assert swapped.first.tolist() == found.first.tolist()


def test_gradients_are_floats_of_a_kibibyte_reduced_outside_of_the_model() -> None:
    batch = rows("AAsgnlAA")
    batch["size_bytes"][6] = 1023
    batch["dtype"][7] = DType.INT64
    batch["comm_index"][1] = 2  # a tensor parallel group
    table = comms()
    table.add(comm_row(2, "0-1", 0, desc=b"tp:device"))
    found = Blocks(batch, table, *(np.zeros(1, np.int64),) * 4)
    assert np.flatnonzero(found.is_gradient).tolist() == [0, 2]
    assert np.flatnonzero(found.is_control).tolist() == [4, 5, 6]
