"""Jobs of which some ranks call something else than the others, as dumps that stand still there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.builders.flight_recorder import T0, Call, FlightJob, Group, write_dumps
from tests.cases.field_case import SILENT, Expected, Scene

Programs = Mapping[int, Sequence[Call]]
TRAIN = ("forward model.py", "training_step loop.py", "fit loop.py")


def world(n_ranks: int, desc: str = "default_pg") -> dict[str, Group]:
    return {"0": Group(desc, tuple(range(n_ranks)))}


def played(groups: Mapping[str, Group], programs: Programs, **settings: Any) -> FlightJob:
    """A job that stands still at the first call in which the members of a group differ."""
    job = FlightJob(dict(groups), {r: list(own) for r, own in programs.items()}, **settings)
    for name, group in groups.items():
        index = first_difference([programs[rank] for rank in group.members], name)
        if index is not None:
            rank = group.members[0]
            own = [place for place, call in enumerate(programs[rank]) if _is_of(call, name)]
            if index < len(own):
                job.dead.add((rank, own[index]))
    return job.play()


def first_difference(programs: Iterable[Sequence[Call]], name: str) -> int | None:
    """Which collective of the group is the first that is not the same on all; None without one."""
    own = [[_needed(call) for call in one if _is_of(call, name)] for one in programs]
    return next(
        (place for place, calls in enumerate(zip_longest(*own)) if len(set(calls) - {None}) > 1),
        None,
    )


def _is_of(call: Call, name: str) -> bool:
    return call.group == name and not call.is_p2p


def _needed(call: Call) -> Call:
    """What has to be equal on all members: parts of an exchange may be uneven."""
    return call._replace(site=(), shape=() if call.op == "all_to_all" else call.shape)


def scene(
    folder: Path, fault: FlightJob, expected: Expected, twin: FlightJob, *,
    twin_expected: Expected = SILENT, twin_ranks: Iterable[int] | None = None, **form: Any,
) -> Scene:  # fmt: skip
    """The dumps of both jobs, each in a folder of its own."""
    for name in ("fault", "twin"):
        (folder / name).mkdir()
    write_dumps(folder / "fault", fault, **form)
    write_dumps(folder / "twin", twin, ranks=twin_ranks, **form)
    return Scene(folder / "fault", expected, folder / "twin", twin_expected)


def stamped(at_s: float) -> str:
    """A stamp so many seconds after the first call of the job, as collectors write it."""
    total = T0 / 1e9 + at_s
    moment = dt.datetime.fromtimestamp(total, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def write_log(path: Path, lines: Iterable[tuple[float, str]]) -> None:
    """A log with a stamp before each line."""
    path.write_text("".join(f"{stamped(at_s)} {text}\n" for at_s, text in lines))
