"""The boundary machine on letters: O opens, A anchors, C closes, x is any other op."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.model.ops import Op, OpState
from comminsight.model.step import StepEnd, StepSummary
from comminsight.semantics.boundary import BoundaryMachine
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.losses import Loss, LossLog
from comminsight.semantics.template import Sequence, Symbol, Template
from tests.builders import MS, comm_row, identity, ops, record

LETTERS = {
    "O": Op.ALL_GATHER, "A": Op.REDUCE, "C": Op.ALL_REDUCE, "x": Op.BROADCAST, "S": Op.SEND,
    "W": Op.REDUCE_SCATTER,
}  # fmt: skip


def sequence(letters: str) -> Sequence:
    return tuple((Symbol(ops=(LETTERS[letter],)),) for letter in letters)


def template(
    opens: str = "O", anchors: str = "A", closes: str = "C", works: str = "", **fields: Any
) -> Template:
    pattern: dict[str, Any] = {
        key: (sequence(letters),) if letters else ()
        for key, letters in (
            ("opens", opens), ("anchors", anchors), ("closes", closes), ("works", works)
        )
    }  # fmt: skip
    return Template(name="t", version=2, **pattern, **fields)


BEHIND = template(works="W", is_work_behind=True)


def rows(letters: str) -> np.ndarray:
    """One op per letter, 10 ms apart, 5 ms long; ``seq`` is the position plus one."""
    return ops(
        *(
            record(
                seq=i + 1, kind=1, op=LETTERS[letter], comm_index=1, op_seq=i + 1, match_seq=i + 1,
                start_ns=(i + 1) * 10 * MS, end_ns=(i + 1) * 10 * MS + 5 * MS,
            )
            for i, letter in enumerate(letters)
        )
    )  # fmt: skip


def machine(pattern: Template, losses: LossLog | None = None) -> BoundaryMachine:
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    return BoundaryMachine(pattern, identity(0), table, losses or LossLog())


def run(letters: str, pattern: Template, chunk: int = 1000) -> tuple[list[StepSummary], Any]:
    """Steps without an explicit end."""
    stepper = machine(pattern)
    batch = rows(letters)
    steps = [
        step
        for first in range(0, len(batch), chunk)
        for step in stepper.feed(batch[first : first + chunk])
    ]
    return steps, stepper


def shape(steps: list[StepSummary]) -> list[tuple[int, int, str]]:
    """(first position, last position, proof) of each step."""
    return [(step.first_seq - 1, step.last_seq - 1, step.end_proof.value) for step in steps]


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("letters", "pattern", "expected"),
    [
        ("OxACOxACO", template(), [(0, 3, "close"), (4, 7, "close")]),
        ("xxOxACxxOxAC", template(), [(2, 5, "close")]),  # the last one waits for an Open
        ("OxOxOxACO", template(), [(0, 7, "close")]),  # Open-like ops inside do not split
        ("OxAxxOxACO", template(), [(0, 4, "next_open"), (5, 8, "close")]),  # lost Close
        ("OxxOxxACO", template(), [(0, 7, "close")]),  # both lost: two steps fuse
        ("OxCxO", template(), [(0, 2, "close")]),  # lost Anchor
        ("CAxOxACO", template(), [(3, 6, "close")]),  # proofs before the first Open do not count
        ("OxCOxCO", template(anchors="C"), [(0, 2, "close"), (3, 5, "close")]),  # anchor == close
        ("OxSSOSSO", template("SS", "O", ""), [(2, 4, "next_open")]),
        ("OOxCCOOxCCOO", template("OO", "", "CC"), [(0, 4, "close"), (5, 9, "close")]),
        ("OOxCxCOOxCCOO", template("OO", "", "CC"), [(0, 10, "close")]),  # Close must be strict
        ("OOOOO", template("O", "", "O"), [(0, 1, "close"), (2, 3, "close")]),
        (
            "OOO", template("O", "O", "O", is_close_inside_open=True),
            [(0, 0, "close"), (1, 1, "close")],
        ),
        ("OxCOxCOWCO", template(works="W"), [(0, 8, "close")]),  # ends before the work are none's
        ("OWxCOWCO", template(works="W"), [(0, 3, "close"), (4, 6, "close")]),
        ("OxCOxCO", template(works="W"), []),
        (  # the work is the first op of the Open, which is the Close as well
            "WCxWCxxWCx", template("WC", "WC", "WCx", "W", is_close_inside_open=True),
            [(0, 2, "close"), (3, 5, "close")],
        ),
        ("OWxACOWxACOWx", template("OWx", works="W"), [(0, 4, "close"), (5, 9, "close")]),
        ("OxCWxOxCWO", BEHIND, [(0, 2, "close"), (5, 7, "close")]),
        ("OxCWxOxCxOxCWO", BEHIND, [(0, 2, "close"), (9, 11, "close")]),  # none behind the second
    ],
)  # fmt: skip
def test_steps(
    letters: str, pattern: Template, expected: list[tuple[int, int, str]], chunk: int
) -> None:
    assert shape(run(letters, pattern, chunk)[0]) == expected


def test_the_step_carries_its_times_ops_and_evidence() -> None:
    steps, _ = run("xOxACxxO", template())
    (step,) = steps
    assert (step.start_ns, step.end_ns) == (20 * MS, 55 * MS)
    assert (step.span_ns, step.period_ns, step.gap_ns) == (35 * MS, 60 * MS, 25 * MS)
    assert (step.n_ops, step.n_ops_between) == (4, 2)
    assert (step.step, step.template, step.template_version) == (0, "t", 2)
    assert step.anchor is not None
    assert (step.first.op, step.anchor.op, step.last.op) == (7 - 5, Op.REDUCE, Op.ALL_REDUCE)
    assert (step.anchor.op_seq, step.anchor.role, step.anchor.start_ns) == (4, "GLOBAL", 40 * MS)
    assert step.first.comm_hash == int(comm_row(1, "0-3", 0)["comm_hash"][0])
    assert step.coverage_complete


@pytest.mark.parametrize(
    ("letters", "pattern", "expected"),
    [
        ("OxACx", template(), [(0, 3, "close")]),
        ("OxA", template(), []),  # an Anchor alone is no end
        ("OxAx", template(is_anchor_proof=True), [(0, 3, "explicit")]),
        ("Oxx", template(), []),
        ("xx", template(), []),
    ],
)
def test_explicit_end_emits_only_what_is_proved(
    letters: str, pattern: Template, expected: list[tuple[int, int, str]]
) -> None:
    steps, stepper = run(letters, pattern)
    assert steps == []
    last = stepper.finish()
    assert shape(last) == expected
    assert all(step.period_ns == step.gap_ns == 0 for step in last)
    assert stepper.finish() == []


def test_every_op_is_before_in_or_between_steps_or_in_the_open_one() -> None:
    _, stepper = run("xxOxACxOxAOACxxxOx", template())
    assert (stepper.n_before, stepper.n_in_steps, stepper.n_between) == (2, 4 + 3 + 3, 1 + 3)
    assert stepper.step is not None
    assert stepper.position == 18


@pytest.mark.parametrize(
    ("letters", "is_complete", "proof"),
    [
        ("OxACO", True, StepEnd.CLOSE),
        ("OxCO", False, StepEnd.CLOSE),
        ("OxAO", False, StepEnd.NEXT_OPEN),
    ],
)
def test_coverage_needs_anchor_and_close(letters: str, is_complete: bool, proof: StepEnd) -> None:
    (step,) = run(letters, template())[0]
    assert (step.coverage_complete, step.end_proof) == (is_complete, proof)


def naive(
    letters: str, opens: str, anchors: str, closes: str, works: str, is_inside: bool
) -> list[tuple[int, int, str]]:
    """The rules op by op, without tables or vectors."""
    patterns = {"open": opens, "work": works, "anchor": anchors, "close": closes}
    states = dict.fromkeys(patterns, 0)
    step: dict[str, int] | None = None
    steps = []
    for position, letter in enumerate(letters):
        first = completed(patterns, states, position, letter)
        proofs = [] if step is None else [step[k] for k in ("anchor", "close") if k in step]
        if "open" in first and (step is None or (proofs and first["open"] > min(proofs))):
            if step is not None:
                has_close = step.get("close", len(letters)) < first["open"]
                last = step["close"] if has_close else first["open"] - 1
                steps.append((step["first"], last, "close" if has_close else "next_open"))
            step = {"first": first["open"], "open": position}
            inner: dict[str, int] = {"work": 0}
            for at in range(first["open"], position):
                if "work" not in step and completed({"work": works}, inner, at, letters[at]):
                    step["work"] = at
        if step is not None and first.get("work", -1) >= step["first"]:
            step.setdefault("work", position)
        for kind in {"anchor", "close"} & first.keys():
            if step is not None and kind not in step and not (works and "work" not in step):
                is_own = first[kind] >= step["first"] if is_inside else first[kind] > step["open"]
                if is_own and position >= step["open"]:
                    step[kind] = position
    return steps


def completed(
    patterns: dict[str, str], states: dict[str, int], position: int, letter: str
) -> dict[str, int]:
    """First position of each pattern that this letter completes."""
    first = {}
    for kind, wanted in patterns.items():
        if not wanted:
            continue
        state = states[kind]
        state = state + 1 if letter == wanted[state] else int(letter == wanted[0])
        if state == len(wanted):
            first[kind] = position - len(wanted) + 1
            state = 0
        states[kind] = state
    return first


PATTERN = st.text("OACx", min_size=1, max_size=4)
WORK = st.text("OACxW", max_size=3)


@settings(max_examples=400, deadline=None)
@given(
    PATTERN, PATTERN, PATTERN, WORK, st.booleans(), st.text("OACxW", max_size=80), st.integers(1, 7)
)
def test_any_template_gives_the_same_steps_in_any_chunking_and_no_op_twice(
    opens: str, anchors: str, closes: str, works: str, is_inside: bool, letters: str, chunk: int
) -> None:
    pattern = template(opens, anchors, closes, works, is_close_inside_open=is_inside)
    expected, whole = run(letters or "x", pattern)
    steps, stepper = run(letters or "x", pattern, chunk)
    assert shape(steps) == naive(letters, opens, anchors, closes, works, is_inside)
    assert steps == expected
    assert steps + stepper.finish() == expected + whole.finish()
    shapes = shape(steps)
    assert all(first <= last for first, last, _ in shapes)
    assert all(before[1] < after[0] for before, after in pairwise(shapes))
    assert stepper.n_in_steps == whole.n_in_steps >= sum(step.n_ops for step in steps)


def test_losses_inside_the_window_spoil_the_coverage_of_that_step_only() -> None:
    losses = LossLog([Loss(0, 15 * MS, 15 * MS, n_late=2), Loss(0, 16 * MS, 17 * MS, n_lost=5)])
    stepper = machine(template(), losses)
    first, second = stepper.feed(rows("OxACOxACO"))
    assert (first.n_late, first.n_lost, first.coverage_complete) == (2, 5, False)
    assert (second.n_late, second.n_lost, second.coverage_complete) == (0, 0, True)


def test_an_op_without_a_seen_end_ends_the_step_at_its_start() -> None:
    batch = rows("OxACO")
    batch["end_ns"][3] = 0
    (step,) = machine(template()).feed(batch)
    assert step.end_ns == 40 * MS


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ("", [(0, 2, "close"), (3, 5, "close")]),
        ("C", [(0, 2, "close"), (3, 5, "explicit")]),
        ("AC", [(0, 2, "close")]),
    ],
)
@pytest.mark.parametrize("state", [OpState.FAILED, OpState.ABORTED])
def test_an_op_that_failed_proves_no_end(
    failed: str, expected: list[tuple[int, int, str]], state: OpState
) -> None:
    stepper = machine(template(is_anchor_proof=True))
    batch = rows("OACOAC")
    for letter in failed:
        batch["state"]["OACOAC".rindex(letter)] = state
    assert shape([*stepper.feed(batch), *stepper.finish()]) == expected
