"""A law of verdicts on logs: other prefixes, another order of the files and lines that are missing
give the same accusation or none, never another one. A hint that names nobody is none."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from comminsight.model.verdict import Cause, Confidence
from tests.builders.log_files import FORMS, Line, write_logs
from tests.cases import (
    class_01_dead_ranks,
    class_06b_preparation,
    class_08_init,
    class_10_limits,
    class_12_watchdogs,
    class_13_versions,
)
from tests.cases.field_case import NO_FINDING, Expected, FieldCase, judge

MODULES = (
    class_01_dead_ranks, class_06b_preparation, class_08_init, class_10_limits,
    class_12_watchdogs, class_13_versions,
)  # fmt: skip
N_SEEDS = 6
# dumps beside the logs, or evidence that is not a folder
OTHER_EVIDENCE = {5, 87, 88, 96, 101, 105}
# what is right where the lines that told more are lost
LESS = {83: Cause.RANK_DEAD, 97: Cause.LONG_LEGIT_OP}


def scenes() -> Iterator[Any]:
    for module in MODULES:
        for case in module.CASES:
            for place, variant in enumerate(case.variants):
                if case.number not in OTHER_EVIDENCE and not variant.get("has_dumps"):
                    name = f"C{case.number:02d}-{place}"
                    yield pytest.param(module, case, variant, id=name)


def lines_of(
    module: ModuleType, case: FieldCase, variant: Any, folder: Path, patch: pytest.MonkeyPatch
) -> tuple[list[Line], Expected]:
    """What the builder of the case writes, before it is written."""
    taken: dict[str, list[Line]] = {}

    def take(place: Path, lines: Iterable[Line], *, form: str = "mixed") -> None:
        taken[place.name] = list(lines)

    patch.setattr(module, "write_logs", take)
    scene = case.build(folder, **variant)
    return taken["fault"], scene.expected


def mixed_anew(lines: list[Line], rng: random.Random) -> list[Line]:
    """The lines of all ranks in another order, in which each rank keeps its own: files collect
    what is written at about one time in any order."""
    late_s = {rank: rng.uniform(0.0, 0.05) for rank in {line.rank for line in lines}}
    return sorted(lines, key=lambda line: line.at_s + late_s[line.rank])


@pytest.mark.parametrize(("module", "case", "variant"), list(scenes()))
def test_no_other_accusation_follows_from_less_or_other_lines(
    module: ModuleType, case: FieldCase, variant: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "scene").mkdir()
    lines, expected = lines_of(module, case, variant, tmp_path / "scene", monkeypatch)
    for seed in range(N_SEEDS):
        rng = random.Random(f"{case.number} {sorted(variant)} {seed}")
        kept = [line for line in lines if rng.random() >= (0.0, 0.15, 0.5)[seed % 3]]
        form = rng.choice(sorted(FORMS))
        folder = tmp_path / f"{seed}"
        write_logs(folder, mixed_anew(kept, rng), form=form)
        for verdict in judge(folder):
            is_hint = verdict.confidence is not Confidence.HIGH and not verdict.culprits
            if verdict.cause in NO_FINDING or is_hint:
                continue
            said = f"{form}, seed {seed}: {verdict.cause} {verdict.culprits}"
            less = LESS.get(case.number)
            assert verdict.cause in {*expected.causes, *expected.also, less}, said
            named = expected.culprits or ()
            named = named or ((variant["culprit"],) if verdict.cause is less else ())
            if expected.culprits is not None:
                assert set(verdict.culprits) <= set(named), said
