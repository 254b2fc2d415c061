"""How the close of a data-parallel step is found: letters are sizes, "." is any other op."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.learn import resolve
from comminsight.semantics.template import Template
from tests.builders import MS, allreduce, broadcast, comm_row, ops
from tests.unit.semantics.shipped import shipped_templates

DDP = next(template for template in shipped_templates() if template.name == "ddp")
UNIT_BYTES = 1 << 20


def rows(letters: str, *, first_seq: int = 1, pauses: bool = False) -> np.ndarray:
    """ "a" is 1 MiB, "b" 2 MiB, …; a space is a pause of 50 ms if asked for."""
    at_ms = 10.0
    batch: list[np.ndarray] = []
    for letter in letters:
        at_ms += 50 * pauses if letter == " " else 2
        if letter == " ":
            continue
        size = (ord(letter) - ord("a") + 1) * UNIT_BYTES
        maker = broadcast if letter == "." else allreduce
        batch.append(maker(first_seq + len(batch), at_ms, size=4 if letter == "." else size))
    return ops(*batch)


def closes(batch: np.ndarray) -> set[str] | str:
    """The learnt close sequences in letters, or the reason."""
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    resolved = resolve(DDP, batch, table)
    if isinstance(resolved, str):
        return resolved
    assert resolved.anchors == resolved.closes
    return {
        "".join(chr(position[0].min_bytes // UNIT_BYTES + ord("a") - 1) for position in sequence)
        for sequence in resolved.closes
    }


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("..d ..aaaa aaaa aaaa", {"d", "aaaa"}),  # one bucket at first, then the rebuilt ones
        ("..d ..abc abca. abca.", "gradient_bytes_not_constant"),
        ("f ..abc abc abc", {"f", "c"}),  # the last bucket alone tells
        ("b. b. b. b.", {"b"}),  # one bucket per step and a loss
        ("ba. ba. ba. ba.", {"a"}),
        ("d ..aba aba aba", {"d", "ba"}),  # "a" alone would end a step too early
        ("d. .aabb. aabb. aabb", "gradient_bytes_not_constant"),
        (".ba ba ba ba", {"a"}),  # no other op, unequal buckets: the period
        (".aa aa aa aa", "gradient_bytes_undecided"),  # equal buckets: nothing tells
        (".a", "gradient_bytes_undecided"),
        ("....", "no_gradient_ops"),
    ],
)
def test_from_the_first_op_of_the_job(letters: str, expected: set[str] | str) -> None:
    assert closes(rows(letters)) == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("c .abc .abc .abc .ab", {"c"}),  # attached inside a step
        ("a .aa .aa .aa", "gradient_bytes_undecided"),  # each run may be two steps
    ],
)
def test_from_the_middle_of_the_job(letters: str, expected: set[str] | str) -> None:
    assert closes(rows(letters, first_seq=1000)) == expected


def test_pauses_decide_between_equal_buckets() -> None:
    assert closes(rows(".aaa aaa aaa aaa aaa aaa", pauses=True)) == {"aaa"}
    assert closes(rows("aa aaa aaa aaa aaa aaa", first_seq=50, pauses=True)) == {"aaa"}
    loss_each_second_step = rows(".aaa aaa. aaa aaa. aaa aaa.", pauses=True)
    assert closes(loss_each_second_step) == {"aaa"}


def test_a_template_that_needs_no_learning_is_itself() -> None:
    plain = Template(name="plain", version=1)
    assert resolve(plain, rows("a"), CommTable()) is plain


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("..abc .abc .ac .abc .abc .abc", {"c"}),  # one of many lost: the others add up
        ("..abc .ac .ac .abc", "gradient_bytes_not_constant"),
        (".aaa .aa .aaa .aaa .aaa .aaa .aaa", {"aaa"}),  # separated, and paused where separated
        (".aaaa .aaa .aaaa .aaaa .aaaa .aaaa .aaaa", {"aaaa"}),
    ],
)
def test_lost_records_do_not_refute_what_most_steps_show(
    letters: str, expected: set[str] | str
) -> None:
    assert closes(rows(letters, pauses=True)) == expected


@pytest.mark.parametrize(
    ("later_ns", "expected"), [(200_000, {"aa"}), (500_000, "gradient_bytes_undecided")]
)
def test_a_pause_must_stand_out(later_ns: int, expected: set[str] | str) -> None:
    batch = rows(".aa.aa.aa.aa.aa.aa.aa.aa")  # 4 ms before a run, 2 ms inside
    batch["start_ns"][2::3] += later_ns  # 3.8 to 2.2 ms, or 3.5 to 2.5 ms
    assert closes(batch) == expected


@pytest.mark.parametrize("separator", ["", "."])
@pytest.mark.parametrize("n", [4, 10, 16])
@pytest.mark.parametrize("is_forward", [False, True])
def test_a_forward_pass_fits_into_the_pause_before_a_step(
    separator: str, n: int, *, is_forward: bool
) -> None:
    """Every n ops, each 20 ms behind the one before, is a pause: an evaluation of steps with one
    bucket, or a forward pass before n equal ones."""
    step = "a" * n + separator
    batch = rows(f".{step * 6}")
    inside_ns, more_ns = (n - 1) * 20 * MS, MS * (-1, 1)[is_forward]
    later_ns = np.where(batch["size_bytes"] == UNIT_BYTES, 19 * MS, 0)
    later_ns[1 :: len(step)] += inside_ns // 4 + more_ns - len(separator) * 2 * MS
    for stamp in ("start_ns", "end_ns"):
        batch[stamp] += np.cumsum(later_ns)
    assert closes(batch) == ({"a" * n} if is_forward else "gradient_bytes_undecided")


def test_buckets_that_wait_for_each_other_are_one_step() -> None:
    """Their reductions take longer than the backward pass, and it longer than the forward pass."""
    batch = rows(".aaaaaaaa" * 6)
    is_bucket = batch["size_bytes"] == UNIT_BYTES
    later_ns = np.where(is_bucket, 18 * MS, 0)
    later_ns[1::9] += 12 * MS
    for stamp in ("start_ns", "end_ns"):
        batch[stamp] += np.cumsum(later_ns)
    assert closes(batch) == "gradient_bytes_undecided"  # the same times, and nothing in flight
    batch["end_ns"][is_bucket] = batch["start_ns"][is_bucket] + 20 * MS
    assert closes(batch) == {"a" * 8}


@pytest.mark.parametrize("between", [".", "...."])
def test_the_rebuild_tells_a_single_bucket(between: str) -> None:
    """Its broadcasts stand behind the first step."""
    assert closes(rows("a.." + ("aaaaaaaaaa" + between) * 5, pauses=True)) == {"a"}


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("abc abc abc abc abc", {"c"}),
        ("bc abc abc abc abc", {"c"}),
        ("c abc abc abc abc a", {"c"}),
        ("bcabcabcabcabc", "gradient_bytes_undecided"),  # no pause tells which bucket is the first
        ("aa b a a a a b a a a a b a a a a b a a", "gradient_bytes_undecided"),  # a matrix, in turn
        ("b a a a a b a a a a b a a a a b a a a a", "gradient_bytes_undecided"),
    ],
)
def test_a_period_begins_where_the_pause_is_unless_the_job_does(
    letters: str, expected: set[str] | str
) -> None:
    batch = rows(letters, first_seq=1000, pauses=True)
    assert closes(batch) == expected
    assert closes(rows("abcabcabcabc")) == {"c"}


def test_a_period_of_unequal_buckets_needs_no_patience() -> None:
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    for letters, patience_ops in (("bc abc abc abc abc", 0), ("aa aaa aaa aaa aaa aaa", 1024)):
        found = resolve(DDP, rows(letters, first_seq=1000, pauses=True), table)
        assert isinstance(found, Template)
        assert found.patience_ops == patience_ops
