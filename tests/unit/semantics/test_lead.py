"""What stands before the usual ops of a step is left out of it, if it is no training."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.semantics.boundary import BoundaryMachine
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.lead import Excess, compare, counted, kinds, merged, total
from comminsight.semantics.losses import LossLog
from comminsight.semantics.template import Template
from tests.builders import comm_row, identity
from tests.unit.semantics.test_boundary import machine, rows, run, shape, template


def with_lead(letters: str) -> Template:
    """O opens, W is work, C closes; the ops before the work of most steps are these."""
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    lead = counted(kinds(rows(letters), table))
    return template("O", "", "C", "W", lead=lead)


@pytest.mark.parametrize(
    ("excess", "lead", "expected"),
    [
        ({1: 4}, {1: 9}, Excess.ALIKE),
        ({1: 40}, {1: 9}, Excess.ALIKE),
        ({1: 4, 2: 1}, {1: 9}, Excess.FOREIGN),
        ({1: 3, 2: 6}, {1: 9, 2: 18}, Excess.ALIKE),
        ({1: 6, 2: 6}, {1: 9, 2: 18}, Excess.UNLIKE),  # as many of both: forward passes
        ({1: 6}, {1: 9, 2: 18}, Excess.UNLIKE),
        ({1: 6, 2: 12}, {1: 9, 2: 18, 3: 1}, Excess.ALIKE),  # a step has one of a kind once
        ({1: 6, 2: 12}, {1: 9, 2: 18, 3: 3}, Excess.UNLIKE),
        ({1: 7, 2: 7, 3: 1}, {1: 14, 2: 14, 3: 1}, Excess.ALIKE),  # its last number is its end
    ],
)
def test_what_stands_before_a_lead_is_more_of_the_same_or_not(
    excess: dict[int, int], lead: dict[int, int], expected: Excess
) -> None:
    assert compare(tuple(excess.items()), tuple(lead.items())) is expected


def test_counts_add_up() -> None:
    assert merged(((1, 2), (3, 4)), ((0, 1), (3, 5))) == ((0, 1), (1, 2), (3, 9))
    assert total(((1, 2), (3, 4))) == 6
    assert counted(kinds(rows(""), CommTable())) == ()


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("letters", "firsts"),
    [
        ("OSxWCOSxWCO", [0, 5]),
        ("OSxWCOOASxOSxWCO", [0, 10]),  # something else before it
        ("OSxWCOSxOSxWCO", [0, 5]),  # more of the same
        ("OSxWCOSASxWCO", [0, 5]),  # something else in the midst of it
        ("OSxWCOACOAOSxWCO", [0, 10]),
        ("OAOAOSxWCOSxWCO", [4, 9]),  # before the first step too
        ("OSxWCOASxSWCO", [0, 5]),  # a step that begins in the midst of nothing
        ("OSWCOSxWCO", [0, 4]),  # a lost record
    ],
)
def test_a_step_begins_where_its_lead_does(letters: str, firsts: list[int], chunk: int) -> None:
    steps, stepper = run(letters, with_lead("OSx"), chunk)
    assert [first for first, _, _ in shape(steps)] == firsts
    n_in = sum(step.n_ops for step in steps)
    assert stepper.n_in_steps == n_in
    assert stepper.step is not None
    n_open = stepper.position - stepper.step.first.position
    assert stepper.n_before + n_in + stepper.n_between + n_open == len(letters)


@pytest.mark.parametrize(
    ("letters", "firsts"),
    [
        ("OSSSSxWCOOOOSSSSxWCO", [0, 11]),  # other proportions, behind an ordinary step
        ("OSSSSxWCOSWCOOOOSSSSxWCO", [0, 8, 12]),  # behind another one: it may be training
        ("OOOOSSSSxWCOSSSSxWCO", [3, 11]),  # before the first
        ("OSSSSxWCOOOAOSSSSxWCOOOOSSSSxWCO", [0, 12, 23]),
        ("OSSSSxWC" + "OOOOSSSSxWC" * 3 + "O", [0, 11, 19, 30]),  # from now on, it seems
    ],
)
def test_proportions_tell_behind_an_ordinary_step(letters: str, firsts: list[int]) -> None:
    steps, _ = run(letters, with_lead("OSSSSx"))
    assert [first for first, _, _ in shape(steps)] == firsts


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["OSxWC", "OOA", "OSx", "OO", "A", "OSWC", "C", "OSASxWC"]), max_size=30
    ),
    st.integers(1, 9),
    st.sampled_from(["OSx", "OSxOSx", "OS", "OSSSSx"]),
)
def test_chunks_and_snapshots_change_nothing(parts: list[str], chunk: int, lead: str) -> None:
    letters, pattern = "".join(parts) or "x", with_lead(lead)
    whole, stepper = run(letters, pattern)
    batch, steps, counts = rows(letters), [], []
    one = machine(pattern)
    for first in range(0, len(batch), chunk):
        steps += one.feed(batch[first : first + chunk])
        counts.append(len(one.snapshot().tail))
        one = resumed(one, pattern)
    assert steps == whole
    assert max(counts) <= 128 * (len(lead) + 5), "no more is held than a lead needs"
    assert steps + one.finish() == whole + stepper.finish()
    assert (one.n_before, one.n_between, one.n_in_steps) == (
        stepper.n_before, stepper.n_between, stepper.n_in_steps,
    )  # fmt: skip


def resumed(stepper: BoundaryMachine, pattern: Template) -> BoundaryMachine:
    """The same machine behind a snapshot that went through bytes."""
    snapshot = stepper.snapshot()
    data = msgspec.msgpack.encode(snapshot)
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    fresh = BoundaryMachine(pattern, identity(0), table, LossLog())
    fresh.restore(msgspec.msgpack.decode(data, type=type(snapshot)))
    return fresh
