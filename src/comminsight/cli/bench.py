"""``comminsight bench``: how long collectives take here; ``bench compare A B``: what changed;
``bench show RECORD...``: what records hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.bench_words import chosen, counts
from comminsight.cli.choices import Lang
from comminsight.cli.once import interruptible_once
from comminsight.cli.plots import plot_drawer, write_plot
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.diagnosis.bench_compare import compare_records
from comminsight.errors import ExitCode, UsageError
from comminsight.model.bench import BenchPlan, BenchRecord, BenchRun
from comminsight.model.bench_algorithms import (
    ALGORITHMS,
    COLLECTIVES,
    DEFAULT_ALGORITHMS,
    PROTOCOLS,
    collectives_of,
)
from comminsight.probe.bench_commands import shown
from comminsight.probe.bench_launch import measure, read_record
from comminsight.probe.bench_refusal import refuse_unknown
from comminsight.report.bench_text import render_bench, render_comparison, render_records
from comminsight.report.json_form import bench_json

DEFAULTS = BenchPlan()
PLOT = "comminsight.report.bench_plot"
PlotFile = Annotated[
    Path | None, typer.Option("--plot", help="also draw them into this new .svg or .png")
]


def bench(  # noqa: PLR0913 - one for each option
    *,
    run: Annotated[bool, typer.Option("--run", help="measure; else the plan is printed")] = False,
    out: Annotated[Path, typer.Option(help="folder of the records")] = Path("bench"),
    label: Annotated[str, typer.Option(help="name of this state of things")] = DEFAULTS.label,
    ranks: Annotated[int, typer.Option(help="ranks on this node", min=2)] = DEFAULTS.n_ranks,
    collectives: Annotated[
        str, typer.Option("--collectives", "--collective", help=f"of {', '.join(COLLECTIVES)}")
    ] = "",
    algorithms: Annotated[
        str, typer.Option("--algorithms", "--algorithm", help="Auto,Ring,Tree; gloo: Auto; mpi: "
                          f"Auto,Ring,Tree, also {', '.join(ALGORITHMS['mpi'][3:])}")
    ] = "",
    protocols: Annotated[
        str, typer.Option("--protocols", "--protocol", help="Auto,LL,LL128,Simple (nccl)")
    ] = "Auto",
    elements: Annotated[str, typer.Option(help="elements of each rank")] = "256Ki,1Mi,4Mi",
    dtype: Annotated[str, typer.Option(help="type of the elements")] = DEFAULTS.dtype,
    repeats: Annotated[int, typer.Option(help="rounds that count", min=1)] = DEFAULTS.repeats,
    warmup: Annotated[int, typer.Option(help="rounds before them", min=0)] = DEFAULTS.warmup,
    timeout: Annotated[float, typer.Option(help="seconds for each launch", min=1)] = 600,
    backend: Annotated[str, typer.Option(help="nccl, gloo or mpi")] = DEFAULTS.backend,
    plot: PlotFile = None,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:  # fmt: skip
    """Time collectives over sizes, in one launch for each algorithm; without --run, say what would
    be done. `comminsight bench compare A B` holds two records against each other, `comminsight
    bench show RECORD...` prints records again.
    """
    names = chosen(collectives, "--collectives", COLLECTIVES) or COLLECTIVES
    if backend not in ALGORITHMS:
        raise UsageError(
            f"backend {backend} is not known", next_step=f"take one of {', '.join(ALGORITHMS)}"
        )
    plan = BenchPlan(
        n_ranks=ranks, backend=backend, dtype=dtype, elements=counts(elements), collectives=names,
        algorithms=chosen(algorithms, "--algorithms", ALGORITHMS[backend])
        or tuple(one for one in DEFAULT_ALGORITHMS[backend] if collectives_of(backend, one, names)),
        protocols=chosen(protocols, "--protocols", PROTOCOLS[backend]) or DEFAULTS.protocols,
        warmup=warmup, repeats=repeats, label=label,
    )  # fmt: skip
    refuse_unknown(plan)
    draw = _drawer(plot, is_measured=run)
    if not run:
        _print(BenchRun(plan=plan, commands=tuple(map(shown, plan.launches()))), lang, is_json=json)
        return int(ExitCode.OK)
    done = _measured(plan, out, timeout)
    _print(done, lang, is_json=json)
    _draw(plot, draw, done.records)
    has_failed = any(record.failure for record in done.records)
    return int(ExitCode.PARTIAL if has_failed else ExitCode.OK)


def show(
    records: Annotated[list[Path], typer.Argument(help="records", readable=False)],
    *,
    plot: PlotFile = None,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
) -> int:
    """Print records as they were printed after they were measured."""
    draw = _drawer(plot, is_measured=True)
    read = tuple(map(read_record, records))
    paths = tuple(map(str, records))
    write_output(render_records(paths, read, lang=lang.value, width=terminal_width()))
    _draw(plot, draw, read)
    return int(ExitCode.OK)


def compare(
    first: Annotated[Path, typer.Argument(help="record before", readable=False)],
    second: Annotated[Path, typer.Argument(help="record after", readable=False)],
    *,
    control: Annotated[
        list[Path] | None,
        typer.Option(help="another record of the first state; give four"),
    ] = None,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:
    """Say which collectives became slower: 10 when one did, 3 when they cannot be compared."""
    found = compare_records(
        read_record(first), read_record(second), [read_record(path) for path in control or ()]
    )
    if json:
        write_output(bench_json(found))
    else:
        write_output(render_comparison(found, lang=lang.value, width=terminal_width()))
    if found.differs:
        return int(ExitCode.BAD_INPUT)
    return int(ExitCode.FINDING if found.has_regression else ExitCode.OK)


def _print(done: BenchRun, lang: Lang, *, is_json: bool) -> None:
    if is_json:
        write_output(bench_json(done))
    else:
        write_output(render_bench(done, lang=lang.value, width=terminal_width()))


def _measured(plan: BenchPlan, out: Path, timeout_s: float) -> BenchRun:
    progress(f"measuring {', '.join(plan.algorithms)} on {plan.n_ranks} ranks")
    with interruptible_once():
        paths = measure(plan, out, timeout_s=timeout_s)
    records = tuple(read_record(path) for path in paths)
    return BenchRun(plan=plan, paths=tuple(map(str, paths)), records=records)


def _drawer(plot: Path | None, *, is_measured: bool) -> Callable[..., bytes] | None:
    """Before anything is measured: a plot that cannot be drawn costs nobody a measurement."""
    if plot is None:
        return None
    if not is_measured:
        raise UsageError("--plot draws what was measured", next_step="add --run")
    return plot_drawer(plot, PLOT)


def _draw(
    plot: Path | None, draw: Callable[..., bytes] | None, records: Sequence[BenchRecord]
) -> None:
    if plot is not None and draw is not None:
        write_plot(plot, draw(records, form=plot.suffix[1:]))


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    for name, function in (("compare", compare), ("show", show)):
        if argv[:1] == [name]:
            return call(function, f"bench {name}", argv[1:])
    return call(bench, "bench", argv)
