"""Print how the field cases are answered, by class: right, abstained, wrong, not built.

python tools/score_cases.py [--markdown]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cases.field_case import FieldCase, Grade, answers
from tests.cases.registry import CASES, CLASSES, NOT_COVERED

HEAD = ("class", "cases", "right", "abstained", "wrong", "not built", "scenes", "wrong scenes")


def graded(case: FieldCase, folder: Path) -> tuple[Grade, Counter[Grade]]:
    """The worst grade of all variants and twins, and how many scenes have which."""
    found = answers(case, folder)
    for name, answer in found:
        if answer.grade is not Grade.RIGHT:
            print(f"C{case.number:02d} {case.title}, {name}: {answer.grade}: {answer.said}")
    counts = Counter(answer.grade for _, answer in found)
    worst = next(g for g in (Grade.WRONG, Grade.ABSTAINED, Grade.RIGHT) if counts[g])
    return worst, counts


def rows() -> list[tuple[str, ...]]:
    """One row per class and one of sums."""
    by_number = {case.number: case for case in CASES}
    made: list[list[int]] = []
    names = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, numbers) in CLASSES.items():
            cases = [by_number[n] for n in numbers if n in by_number]
            results = [graded(case, Path(folder)) for case in cases]
            worst = Counter(grade for grade, _ in results)
            scenes = sum((counts for _, counts in results), Counter[Grade]())
            grades = [worst[grade] for grade in Grade]
            made.append([len(numbers), *grades, len(numbers) - len(cases),
                         scenes.total(), scenes[Grade.WRONG]])  # fmt: skip
            names.append(f"{number} {name}")
    made.append([sum(column) for column in zip(*made, strict=True)])
    return [(name, *map(str, row)) for name, row in zip([*names, "all"], made, strict=True)]


def main() -> int:
    """0 unless a scene was answered wrongly."""
    table = rows()
    print("| " + " | ".join(HEAD) + " |")
    print("|" + " --- |" * len(HEAD))
    for row in table:
        print("| " + " | ".join(row) + " |")
    open_cases = {n for _, numbers in CLASSES.values() for n in numbers}
    open_cases -= {case.number for case in CASES}
    for number in sorted(open_cases):
        print(f"C{number:02d} not built: {NOT_COVERED.get(number, 'no reason given yet')}")
    return int(table[-1][4] != "0")


if __name__ == "__main__":
    raise SystemExit(main())
