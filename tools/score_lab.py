"""The score of the lab: real jobs with planted faults, each judged by its recording and its dumps.

make score                                                all kinds
python tools/score_lab.py --kind late_rank --seed 17      one case again; --keep DIR keeps its run
python tools/score_lab.py --update                        write it into docs/scoreboard.md too
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from comminsight.lab.cases import FAULTS, KINDS, SILENT, Case, draw_case
from comminsight.lab.score import DUMPED, RECORDED, open_lab, run_cases, told
from comminsight.lab.scoring import Mark, Outcome, faults_of, summary, table
from comminsight.launch.environment import RecordingOptions, recording_environment

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scoreboard.md"
BEGIN = "<!-- lab: written by tools/score_lab.py --update -->"
END = "<!-- end of lab -->"
SEEDS = 10
HEALTHY = 50
NEEDED_RATIO = 0.98


def chosen(options: argparse.Namespace) -> list[Case]:
    """One case, or so many of every kind; kinds are mixed, so that noise meets all of them."""
    if options.kind and options.seed is not None:
        return [draw_case(options.kind, options.seed)]
    kinds = [options.kind] if options.kind else [*FAULTS, *SILENT]
    first = options.first_seed
    seeds = range(first, first + options.seeds)
    more = range(seeds.stop, first + options.healthy) if "healthy" in kinds else ()
    cases = [draw_case(kind, seed) for seed in seeds for kind in kinds]
    return [*cases, *(draw_case("healthy", seed) for seed in more)]


def is_passed(outcomes: list[Outcome]) -> bool:
    """Nobody is accused wrongly, and of the faults as many as needed are named."""
    faults = [one for one in outcomes if one.source == RECORDED and not one.case.is_silent]
    n_right = sum(one.mark is Mark.RIGHT for one in faults)
    is_clean = all(one.mark is not Mark.WRONG for one in outcomes)
    return is_clean and n_right >= NEEDED_RATIO * len(faults)


def page(outcomes: list[Outcome]) -> str:
    """Both tables, and by seed what is not right: of dumps only what is wrong, since of gloo they
    leave much open."""
    listed = [o for o in outcomes if o.source == RECORDED or o.mark is Mark.WRONG]
    left = "\n".join(f"- {line}" for line in faults_of(listed).splitlines())
    parts = [f"{table(outcomes, one)}\n\n{summary(outcomes, one)}" for one in (RECORDED, DUMPED)]
    return "\n\n".join([*parts, f"Not right:\n\n{left or '- nothing'}"])


def update(text: str) -> None:
    """Put the text between the marks of the page."""
    head, rest = PAGE.read_text("utf-8").split(BEGIN, 1)
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}", "utf-8")


def main() -> int:
    """0 when the score is as promised, 1 when it is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--seed", type=int, help="this seed of the kind only")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of every kind")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of these seeds")
    parser.add_argument("--healthy", type=int, default=HEALTHY, help="healthy runs")
    parser.add_argument("--at-once", type=int, default=4, help="jobs at a time")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    parser.add_argument("--update", action="store_true", help="write the page of scores")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="score-") as scratch:
        folder = (options.keep or Path(scratch)).absolute()
        environment = recording_environment(
            os.environ, run_id="lab", spool=folder, options=RecordingOptions()
        )
        begin_s = time.monotonic()
        with open_lab(folder, environment) as lab:
            outcomes = run_cases(lab, chosen(options), options.at_once)
    print(told(outcomes))
    if options.update:
        update(page(outcomes))
    print(f"\n{len(outcomes)} verdicts in {time.monotonic() - begin_s:.0f} s")
    return 0 if is_passed(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
