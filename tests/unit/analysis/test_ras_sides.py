from __future__ import annotations

import pytest

from comminsight.analysis.ras_sides import ras_sides, still_sides
from comminsight.format.ras import parse_ras
from comminsight.model.ras import RasReading
from tests.builders.ras import TEXT_BEHIND, ras_comm, ras_json, ras_rank


def answer(counts: list[int], stamp: str = "2026-03-01 12:00:00", **more: int) -> bytes:
    members = [ras_rank(rank, launched=n) for rank, n in enumerate(counts)]
    return ras_json(ras_comm(0xAB, members), timestamp=stamp)


def reading(data: bytes, source: str = "a", written_ns: int = 0) -> RasReading:
    return RasReading(answer=parse_ras(data), source=source, written_ns=written_ns)


@pytest.mark.parametrize(
    ("counts", "behind", "ahead"),
    [
        ([42] * 4, None, None),
        ([42, 41, 42, 42], (1,), (0, 2, 3)),
        ([640, 640, 641, 640], (0, 1, 3), (2,)),
        ([5, 6, 7, 7], (0, 1), (2, 3)),
    ],
)
def test_both_sides_are_told(
    counts: list[int], behind: tuple[int, ...] | None, ahead: tuple[int, ...] | None
) -> None:
    found = ras_sides(parse_ras(answer(counts)))
    expected = [] if behind is None else [(behind, ahead, min(counts), max(counts))]
    assert [(one.behind, one.ahead, one.n_launched, one.n_launched_ahead) for one in found] == (
        expected
    )


def test_a_text_names_the_few_and_the_many_are_the_rest() -> None:
    (sides,) = ras_sides(parse_ras(TEXT_BEHIND.encode()))
    assert (sides.behind, sides.n_behind, sides.n_ahead) == ((2,), 1, 7)
    assert (sides.n_launched, sides.n_launched_ahead) == (41, 42)


@pytest.mark.parametrize(
    ("later", "counts", "expected"),
    [
        ("2026-03-01 12:01:00", [41, 42, 42], "a"),  # a minute later nothing has moved
        ("2026-03-01 12:00:00", [41, 42, 42], ""),  # the same answer twice
        ("2026-03-01 12:00:03", [41, 42, 42], ""),
        ("2026-03-01 12:01:00", [42, 43, 43], ""),  # it moves
        ("2026-03-01 12:01:00", [42, 42, 41], ""),  # another rank
        ("yesterday", [41, 42, 42], ""),
    ],
)
def test_what_does_not_move(later: str, counts: list[int], expected: str) -> None:
    two = [reading(answer(counts, later), "b"), reading(answer([41, 42, 42]), "a")]
    assert [same for _, _, same in still_sides(two)] == [expected]


@pytest.mark.parametrize(("written_s", "expected"), [(60, "a"), (3, ""), (0, "")])
def test_texts_are_apart_by_their_files(written_s: int, expected: str) -> None:
    first = reading(TEXT_BEHIND.encode(), "a", 1_000_000_000_000)
    second = reading(TEXT_BEHIND.encode(), "b", (1000 + written_s) * 1_000_000_000)
    assert [same for _, _, same in still_sides([second, first])] == [expected]
