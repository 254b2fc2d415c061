"""What the work of a job tells: on letters, O opens, W is work, C closes, x is any other op."""

from __future__ import annotations

import pytest

from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.lead import total
from comminsight.semantics.learn import resolve
from comminsight.semantics.learn_close import MIN_BLOCKS, MIN_BLOCKS_AT_END, TOO_FEW_STEPS
from comminsight.semantics.template import Template
from comminsight.semantics.work import ENDS_WITHOUT_WORK
from tests.builders import comm_row
from tests.unit.semantics.test_boundary import machine, rows, sequence, shape, template

MICROBATCH, STEP, EVALUATION = "OxC", "OxWC", "OOOxC"
LONG = "OOOOxxxxC" + "OOOOxxxxWC"


def told(letters: str, *, is_end: bool = False) -> Template | str:
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    least = MIN_BLOCKS_AT_END if is_end else MIN_BLOCKS
    return resolve(template("O", "C", "C", "W"), rows(letters), table, least)


def firsts(letters: str) -> list[int]:
    """First ops of the steps under what was learnt from all of them."""
    found = told(letters)
    assert isinstance(found, Template)
    return [first for first, _, _ in shape(machine(found).feed(rows(letters)))]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (STEP * 5, [0, 4, 8, 12]),
        ((MICROBATCH * 2 + STEP) * 5, [0, 10, 20, 30]),
        ((STEP * 4 + EVALUATION) * 3, [0, 4, 8, 12, 21, 25, 29, 33, 42, 46, 50, 54]),
        ((STEP * 4 + EVALUATION * 3) * 2, [0, 4, 8, 12, 31, 35, 39, 43]),
        (LONG * 4 + "OOOOC" * 3 + LONG * 2, [0, 19, 38, 57, 91]),
        ("OxCWx" * 5, [0, 5, 10, 15]),  # the gradients last
        ("OxCWx" * 4 + MICROBATCH + "OxCWx" * 2, [0, 5, 10, 15, 23]),
    ],
)
def test_steps_are_those_with_work(letters: str, expected: list[int]) -> None:
    assert firsts(letters) == expected


@pytest.mark.parametrize(
    ("letters", "reason"),
    [
        ("OxWC" + "OxxWC", TOO_FEW_STEPS),
        ("OxxWC" * 2 + "OxxxWC", TOO_FEW_STEPS),  # two may have lost an x
        ((MICROBATCH * 3 + "OxCWx") * 5, ENDS_WITHOUT_WORK),  # the last microbatch ends nothing
        ("".join(MICROBATCH * n + STEP for n in (1, 3, 2, 5, 4, 7, 6)), ENDS_WITHOUT_WORK),
        (("OxCWx" + STEP) * 4, ENDS_WITHOUT_WORK),  # now before the end, now behind it
        ((MICROBATCH * 70 + STEP) * 4, ENDS_WITHOUT_WORK),
    ],
)
def test_where_nothing_tells_it_says_so(letters: str, reason: str) -> None:
    assert told(letters) == reason


def test_steps_that_lost_an_op_do_not_tell_the_lead_of_the_others() -> None:
    assert firsts("OxxWC" * 2 + "OxxxWC" * 6 + "O") == [0, 5, 10, 16, 22, 28, 34, 40]
    found = told("OxxWC" * 2 + "OxxxWC" * 6)
    assert isinstance(found, Template)
    assert total(found.lead) == 4


def test_a_recording_that_ends_is_taken_as_it_is() -> None:
    found = told(STEP * 2, is_end=True)
    assert isinstance(found, Template)
    assert total(found.lead) == 2


@pytest.mark.parametrize(("n_steps", "patience_ops"), [(10, 32_768), (80, 4096)])
def test_a_job_without_work_is_waited_for_and_its_pauses_are_asked(
    n_steps: int, patience_ops: int
) -> None:
    found = told(MICROBATCH * n_steps)
    assert isinstance(found, Template)
    assert (found.patience_ops, found.is_refuted_by_pauses) == (patience_ops, True)
    assert found.works == (sequence("C"),)
    steps = machine(found).feed(rows(MICROBATCH * n_steps))
    assert [first for first, _, _ in shape(steps)] == list(range(0, 3 * n_steps - 3, 3))


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (("OOxxxC" * 4 + "OOOOC") * 2, [0, 6, 12, 18, 29, 35, 41, 47]),
        ("OOxxxC" * 4 + "OOOOC" * 3 + "OOxxxC" * 9, [0, 6, 12, 18, *range(39, 39 + 48, 6)]),
        ("OOxxxC" * 9 + "OOxxC" + "OOxxxC" * 2, [*range(0, 55, 6), 59]),  # a lost record
        ("OOxxxC" * 9 + "OOxxxOOxxxC" + "OOxxxC" * 2, [*range(0, 55, 6), 65]),  # a lost end
    ],
)
def test_where_no_work_is_an_end_with_a_lead_before_it_is_a_steps(
    letters: str, expected: list[int]
) -> None:
    assert firsts(letters) == expected


def test_a_job_without_work_whose_blocks_are_not_of_one_kind_gets_no_steps() -> None:
    assert told(("OOxxxC" * 2 + "OOOOC") * 9) == ENDS_WITHOUT_WORK
    assert told(("OOxxxC" * 2 + "OOOOC" * 20) * 9) == ENDS_WITHOUT_WORK


def test_leads_that_differ_are_no_lead_but_steps_all_the_same() -> None:
    letters = "".join("O" + "x" * n + "WC" for n in range(1, 12))
    found = told(letters)
    assert isinstance(found, Template)
    assert found.lead == ()
    assert len(machine(found).feed(rows(letters))) == 10


def test_a_template_without_work_is_left_alone() -> None:
    plain = template("O", "C", "C")
    assert resolve(plain, rows(STEP * 5), CommTable()) is plain
