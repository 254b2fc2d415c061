"""Print how the field cases are answered, by class: right, abstained, wrong, not built.

python tools/score_cases.py            print it
python tools/score_cases.py --update   write it into docs/scoreboard.md too
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cases.field_case import FieldCase, Grade, answers
from tests.cases.registry import CASES, CLASSES, NOT_COVERED

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "scoreboard.md"
BEGIN = "<!-- cases: written by tools/score_cases.py --update -->"
END = "<!-- end of cases -->"
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


def page(table: list[tuple[str, ...]]) -> str:
    """The table and the cases that are not built, as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, *table)]
    lines.insert(1, "|" + " --- |" * len(HEAD))
    built = {case.number for case in CASES}
    listed = sorted(n for _, numbers in CLASSES.values() for n in numbers)
    left = [
        f"- C{number:02d}: {NOT_COVERED.get(number, 'no reason given yet')}"
        for number in listed
        if number not in built
    ]
    return "\n".join([*lines, "", "Not built:", "", *left])


def update(text: str) -> None:
    """Put the text between the marks of the page."""
    old = PAGE.read_text("utf-8")
    head, rest = old.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")


def main() -> int:
    """0 unless a scene was answered wrongly."""
    table = rows()
    text = page(table)
    print(text)
    if "--update" in sys.argv[1:]:
        update(text)
    return int(table[-1][4] != "0")


if __name__ == "__main__":
    raise SystemExit(main())
