"""Class 6, second part: preparation of data, for which the others wait at a flag."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from comminsight.diagnosis import codes_logs
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.log_files import Line, init, waiting, write_logs
from tests.cases.class_01_dead_ranks import others, variants
from tests.cases.field_case import Expected, FieldCase, Scene

UNIQUE_ID = (
    "torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving "
    "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
    "wait timeout after 1800000ms, keys: /default_pg/0"
)


def stalled_stream(
    folder: Path, *, n_ranks: int, absent: tuple[int, ...], n_calls: int, has_dumps: bool
) -> Scene:
    """A node does not come to a flag. With only the limits of the others nobody is named."""
    rest = others(n_ranks, *absent)
    lines = init(range(n_ranks), world=n_ranks)
    given_up = waiting(1801, rest, seq=n_calls, limit_s=1800, n_elements=1)
    write_logs(folder / "twin", [*lines, *given_up])
    (folder / "fault").mkdir()
    if has_dumps:
        step = [Call("0", "all_reduce", (1,))] * n_calls
        calls = {rank: step[: n_calls - (rank in absent)] for rank in range(n_ranks)}
        job = FlightJob({"0": Group("default_pg", tuple(range(n_ranks)))}, calls).play()
        write_dumps(folder / "fault", job)
        told: tuple[str, ...] = (codes_logs.FLAG_OP,)
    else:  # the absent ranks dump because another one asked for it
        dumped = [
            Line(1802, rank, f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal "
                 f"due to a collective timeout from  rank {rest[0]} and we will try our best to "
                 f"dump the debug info. Last enqueued NCCL work: {n_calls - 1}, last completed "
                 f"NCCL work: {n_calls - 1}.This is most likely")
            for rank in absent
        ]  # fmt: skip
        write_logs(folder / "fault", [*lines, *given_up, *dumped])
        told = (codes_logs.LOG_COUNTERS, codes_logs.FLAG_OP)
    expected = Expected((Cause.RANK_NOT_ENTERED,), absent, told=told)
    twin = Expected(told=(codes_logs.SILENT_RANKS,))
    return Scene(folder / "fault", expected, folder / "twin", twin)


def index_building(
    folder: Path, *, n_ranks: int, culprit: int, limit_s: int, word: str, form: str
) -> Scene:
    """One rank prepares data for longer than the others wait. In the twin it was ready in time."""
    rest = others(n_ranks, culprit)
    lines = init(range(n_ranks), world=n_ranks)
    given_up = waiting(limit_s + 2, rest, seq=2, op="ALLREDUCE", limit_s=limit_s, n_elements=1)
    shares = {40: 0.1, 70: 0.6, 90: 1.05}
    work = [
        Line(limit_s * share, culprit, f"{word}:  {pct}%|####      | {pct}/100 [00:10<00:06, 6.02 "
             "examples/s]", source="dataset.py:31")
        for pct, share in shares.items()
    ]  # fmt: skip
    done = [dataclasses.replace(line, at_s=-9 * limit_s + line.at_s) for line in work]
    done[-1] = dataclasses.replace(done[-1], text=done[-1].text.replace("90%", "100%"))
    write_logs(folder / "fault", [*lines, *given_up, *work], form=form)
    write_logs(folder / "twin", [*lines, *given_up, *done], form=form)
    expected = Expected((Cause.LONG_LEGIT_OP,), (culprit,), told=(codes_logs.RAISE_LIMIT,))
    return Scene(folder / "fault", expected, folder / "twin")


def id_never_stored(folder: Path, *, n_ranks: int, is_working: bool, pct: int) -> Scene:
    """All but rank 0 wait for the id of the communicator. Without the log of rank 0 nobody knows
    whether it works, is dead, or cannot be reached."""
    waits = []
    for rank in range(1, n_ranks):
        waits += [
            Line(1800.0, rank, "Traceback (most recent call last):", source=""),
            Line(1800.0, rank, '  File "/job/train.py", line 9, in main', source=""),
            Line(1800.0, rank, UNIQUE_ID.format(rank=rank), source=""),
        ]
    work = [Line(1790.0, 0, f"Map:  {pct}%|####  | {pct}/100 [28:10<09:06]", source="data.py:3")]
    quiet = [Line(3.0, 0, "starting worker", source="launch.py:3")]
    write_logs(folder / "fault", [*waits, *(work if is_working else quiet)], form="files")
    write_logs(folder / "twin", waits, form="files")
    causes = (Cause.LONG_LEGIT_OP,) if is_working else (Cause.INIT_STUCK,)
    return Scene(folder / "fault", Expected(causes, (0,)), folder / "twin")


CASES: tuple[FieldCase, ...] = (
    FieldCase(48, "a streaming dataset stalls on a node", stalled_stream, variants(
        "n_ranks absent n_calls has_dumps",
        (8, (4, 5, 6, 7), 426, True), (16, (8, 9, 10, 11, 12, 13, 14, 15), 90, False),
        (4, (1,), 7, False), (6, (0, 1), 12, True),
    )),
    FieldCase(49, "one rank builds the index", index_building, variants(
        "n_ranks culprit limit_s word form",
        (8, 0, 1800, "Map", "mixed"), (4, 2, 600, "Building index mappings", "docker"),
        (16, 5, 900, "Filter", "files"), (8, 0, 700, "Running tokenizer on dataset", "cri"),
    )),
    FieldCase(50, "the id of the communicator never comes", id_never_stored, variants(
        "n_ranks is_working pct", (2, True, 61), (8, True, 4), (2, False, 0), (4, False, 0),
    )),
)  # fmt: skip
