"""Class 2: ranks take different paths, and an op is missing on some of them."""

from __future__ import annotations

from pathlib import Path

from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.cases.field_case import Expected, FieldCase, Scene


def uneven_batches(
    folder: Path, *, n_ranks: int, culprit: int, n_steps: int, n_reductions: int, is_json: bool
) -> Scene:
    """One rank has a batch less than the others, who reduce gradients of one step more."""
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    step = [Call("0", "all_reduce", (1024 * (k + 1),)) for k in range(n_reductions)]
    programs = dict.fromkeys(range(n_ranks), step * n_steps)
    (folder / "fault").mkdir()
    (folder / "twin").mkdir()
    healthy = FlightJob(dict(world), dict(programs)).play()
    write_dumps(folder / "twin", healthy, is_json=is_json)
    programs[culprit] = step * (n_steps - 1)
    write_dumps(folder / "fault", FlightJob(world, programs).play(), is_json=is_json)
    accepted = (Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED)
    return Scene(folder / "fault", Expected(accepted, (culprit,)), folder / "twin")


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        6,
        "uneven numbers of batches",
        uneven_batches,
        tuple(
            {"n_ranks": n, "culprit": c, "n_steps": s, "n_reductions": r, "is_json": j}
            for n, c, s, r, j in ((4, 2, 100, 3, False), (8, 0, 12, 1, True), (32, 31, 5, 7, False))
        ),
    ),
)
