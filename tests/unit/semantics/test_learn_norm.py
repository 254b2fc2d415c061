"""Which small all-reduce ends the step of a sharded job; letters as in found_steps.

"l" is a loss of one number, "n" a norm of 16; a step is "gggg.ss" and what is behind it.
"""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.model.ops import Op
from comminsight.semantics.learn_close import TOO_FEW_STEPS
from comminsight.semantics.learn_norm import close_at_norm
from comminsight.semantics.parts import LOOK_LIKE_PARTS
from comminsight.semantics.template import Position, Symbol, Template
from tests.unit.semantics.found_steps import comms, rows

SCATTER, SMALL = Symbol(ops=(Op.REDUCE_SCATTER,)), Symbol(ops=(Op.ALL_REDUCE,), max_bytes=8192)
TEMPLATE = Template(
    name="sharded", version=1, opens=(((Symbol(ops=(Op.ALL_GATHER,)),),),),
    anchors=(((SCATTER,), (SMALL,)),), learn="norm", is_refuted_by_pauses=True,
)  # fmt: skip
_LETTERS = {4: "l", 64: "n"}


def letters_of(position: Position) -> str:
    """What fits: "s", any small one as "*", or those of these sizes."""
    if position == (SCATTER,):
        return "s"
    if position == (SMALL,):
        return "*"
    assert all(symbol.min_bytes == symbol.max_bytes for symbol in position)
    return "|".join(_LETTERS.get(s.min_bytes, str(s.min_bytes)) for s in position)


def closes(batch: np.ndarray, min_blocks: int = 3) -> tuple[set[str], bool] | str:
    """The learnt closes in letters and whether pauses may refute them, or the reason."""
    found = close_at_norm(TEMPLATE, batch, comms(), min_blocks)
    if isinstance(found, str):
        return found
    assert found.anchors == found.closes
    return {" ".join(map(letters_of, one)) for one in found.closes}, found.is_refuted_by_pauses


NORM, LOSS = ({"s n"}, False), ({"s *"}, True)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("gggg.ssn" * 5, NORM),
        ("gggg.ssl" * 5, LOSS),  # may be the loss of a microbatch: the pauses are asked
        ("gggg.ssl" * 3 + "gggg.ssn" * 3, NORM),  # both end something, the norm is unmistakable
        (("gggg.ssl" * 2 + "n") * 5, ({"s * n"}, False)),  # a loss per microbatch, then the norm
        (("gggg.ssl" + "gggg.ssn") * 5, NORM),
        ("gggg.ssl" * 4 + "gggg.ssn" * 2 + "gggg.ssl", LOSS),  # a norm twice is none yet
        ("gggg.snggsngsl" * 5, ({"s l"}, True)),  # layer sums; the norm is a single number
        ("gggg.sngsngs" * 5, LOOK_LIKE_PARTS),  # layer sums, and nothing that ends a step
        ("ggsl" * 9, LOOK_LIKE_PARTS),  # two gathers are no forward pass
        ("gggg.ssgggg.ssl" * 4, LOSS),
        ("gggg.ss" * 5, TOO_FEW_STEPS),  # nothing small
        ("ggggl" * 5, TOO_FEW_STEPS),  # not behind a scatter
        ("", TOO_FEW_STEPS),
    ],
)
def test_what_ends_a_step(letters: str, expected: tuple[set[str], bool] | str) -> None:
    assert closes(rows(letters)) == expected


@pytest.mark.parametrize(
    ("n_steps", "min_blocks", "expected"),
    [(3, 3, NORM), (2, 3, TOO_FEW_STEPS), (2, 2, NORM), (1, 2, TOO_FEW_STEPS),
     (1, 1, TOO_FEW_STEPS)],
)  # fmt: skip
def test_what_follows_the_last_end_is_not_known(
    n_steps: int, min_blocks: int, expected: tuple[set[str], bool] | str
) -> None:
    assert closes(rows("gggg.ssn" * n_steps), min_blocks) == expected


@pytest.mark.parametrize(
    ("n_before_forward", "expected"), [(6, NORM), (5, LOOK_LIKE_PARTS)]
)  # of eight
def test_three_of_four_are_followed_by_a_forward_pass(
    n_before_forward: int, expected: tuple[set[str], bool] | str
) -> None:
    n_within = 8 - n_before_forward
    letters = "gggg.ss" + "ngs" * n_within + "ngggg.ss" * n_before_forward
    assert closes(rows(letters)) == expected


@pytest.mark.parametrize(("n_units", "expected"), [(15, NORM), (16, NORM), (17, LOSS)])
def test_a_norm_has_a_number_for_each_unit(n_units: int, expected: tuple[set[str], bool]) -> None:
    assert closes(rows(("gggg." + "s" * n_units + "n") * 4)) == expected

    behind_a_loss = rows(("gggg." + "s" * n_units + "ln") * 4)
    assert closes(behind_a_loss) == (expected if expected == LOSS else ({"s * n"}, False))


@pytest.mark.parametrize(("count", "expected"), [(3, ({"s 12"}, False)), (2, LOSS)])
def test_fewer_than_three_numbers_are_no_norm(count: int, expected: tuple[set[str], bool]) -> None:
    batch = rows("gggg.sn" * 4)
    is_small = batch["op"] == Op.ALL_REDUCE
    batch["count"][is_small], batch["size_bytes"][is_small] = count, 4 * count
    assert closes(batch) == expected


@pytest.mark.parametrize(
    ("n_before", "expected"), [(3, ({"s * * * n"}, False)), (4, LOSS)]
)  # the norm is too far from the scatter
def test_at_most_three_small_ops_stand_before_the_norm(
    n_before: int, expected: tuple[set[str], bool]
) -> None:
    assert closes(rows(("gggg.ss" + "l" * n_before + "n") * 5)) == expected


@pytest.mark.parametrize(("n_usual", "expected"), [(9, {"s n", "s * n"}), (10, {"s n"})])
def test_a_place_of_less_than_a_tenth_of_the_norms_is_none(
    n_usual: int, expected: set[str]
) -> None:
    assert closes(rows("gggg.ssn" * n_usual + "gggg.ssln")) == (expected, False)


@pytest.mark.parametrize("lost", ["g", "s", "n"])
def test_one_lost_record_changes_nothing(lost: str) -> None:
    batch = rows("gggg.ssn" * 8)
    place = 14 + "ggggssn".index(lost)
    assert closes(np.delete(batch, place)) == NORM


def test_a_large_all_reduce_ends_nothing() -> None:
    assert closes(rows("gggg.ssA" * 5)) == TOO_FEW_STEPS
