"""``comminsight bench``: how long collectives take here; ``bench compare A B``: what changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.diagnosis.bench_compare import compare_records
from comminsight.errors import ExitCode, UsageError
from comminsight.model.bench import ALGORITHMS, BenchPlan, BenchRun
from comminsight.probe.bench_launch import command, measure, read_record, refuse_unknown
from comminsight.report.bench_text import render_bench, render_comparison
from comminsight.report.json_form import bench_json

DEFAULTS = BenchPlan()
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def bench(  # noqa: PLR0913 - one for each option
    *,
    run: Annotated[bool, typer.Option("--run", help="measure; else the plan is printed")] = False,
    out: Annotated[Path, typer.Option(help="folder of the records")] = Path("bench"),
    label: Annotated[str, typer.Option(help="name of this state of things")] = DEFAULTS.label,
    ranks: Annotated[int, typer.Option(help="ranks on this node", min=2)] = DEFAULTS.n_ranks,
    algorithms: Annotated[
        str, typer.Option(help="Auto,Ring,Tree; for gloo, which has no choice, Auto alone")
    ] = "",
    elements: Annotated[str, typer.Option(help="elements of each rank")] = "256Ki,1Mi,4Mi",
    dtype: Annotated[str, typer.Option(help="type of the elements")] = DEFAULTS.dtype,
    repeats: Annotated[int, typer.Option(help="rounds that count", min=1)] = DEFAULTS.repeats,
    warmup: Annotated[int, typer.Option(help="rounds before them", min=0)] = DEFAULTS.warmup,
    timeout: Annotated[float, typer.Option(help="seconds for each launch", min=1)] = 600,
    backend: Annotated[str, typer.Option(help="nccl or gloo")] = DEFAULTS.backend,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:
    """Time collectives over sizes, in one launch for each algorithm; without --run, say what would
    be done. `comminsight bench compare A B` holds two records against each other.
    """
    asked = tuple(one.strip().capitalize() for one in algorithms.split(",") if one.strip())
    plan = BenchPlan(
        n_ranks=ranks, backend=backend, dtype=dtype, elements=_elements(elements),
        algorithms=asked or (ALGORITHMS if backend == "nccl" else ("Auto",)),
        warmup=warmup, repeats=repeats, label=label,
    )  # fmt: skip
    refuse_unknown(plan)
    done = _done(plan, out, timeout) if run else BenchRun(plan=plan, commands=_commands(plan))
    if json:
        write_output(bench_json(done))
    else:
        write_output(render_bench(done, lang=lang.value, width=terminal_width()))
    has_failed = any(record.failure for record in done.records)
    return int(ExitCode.PARTIAL if has_failed else ExitCode.OK)


def compare(
    first: Annotated[Path, typer.Argument(help="record before", readable=False)],
    second: Annotated[Path, typer.Argument(help="record after", readable=False)],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:
    """Say which collectives became slower: 10 when one did, 3 when they cannot be compared."""
    found = compare_records(read_record(first), read_record(second))
    if json:
        write_output(bench_json(found))
    else:
        write_output(render_comparison(found, lang=lang.value, width=terminal_width()))
    if found.differs:
        return int(ExitCode.BAD_INPUT)
    return int(ExitCode.FINDING if found.has_regression else ExitCode.OK)


def _done(plan: BenchPlan, out: Path, timeout_s: float) -> BenchRun:
    paths = []
    for algorithm in plan.algorithms:
        progress(f"measuring {algorithm} on {plan.n_ranks} ranks")
        paths.append(measure(plan, algorithm, out, timeout_s=timeout_s))
    records = tuple(read_record(path) for path in paths)
    return BenchRun(plan=plan, paths=tuple(map(str, paths)), records=records)


def _commands(plan: BenchPlan) -> tuple[str, ...]:
    words = shlex.join(command("PLAN", "FOLDER", plan.n_ranks))
    said = {"Auto": "env -u NCCL_ALGO"}
    return tuple(f"{said.get(one, f'env NCCL_ALGO={one}')} {words}" for one in plan.algorithms)


def _elements(said: str) -> tuple[int, ...]:
    found = tuple(_number(one.strip()) for one in said.split(",") if one.strip())
    if not found or 0 in found:
        raise UsageError(
            f"--elements {said!r} names no number of elements",
            next_step="give numbers such as 1000,256Ki,4Mi",
        )
    return found


def _number(said: str) -> int:
    unit = UNITS.get(said[-2:], 0)
    digits = said[:-2] if unit else said
    return int(digits) * (unit or 1) if digits.isascii() and digits.isdecimal() else 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    if argv[:1] == ["compare"]:
        return call(compare, "bench compare", argv[1:])
    return call(bench, "bench", argv)
