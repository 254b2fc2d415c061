"""Class 14, first part: Flight Recorder dumps that analysers trip over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comminsight.diagnosis import codes
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, torch_pickle
from tests.cases.diverging import played, world
from tests.cases.field_case import SILENT, Expected, FieldCase, Scene

ABSENT = (Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP)
Document = dict[str, Any]


def _write(folder: Path, name: str, document: Document, *, is_json: bool) -> None:
    folder.mkdir(exist_ok=True)
    data = json.dumps(document).encode() if is_json else torch_pickle(document)
    (folder / name).write_bytes(data)


def any_names(
    folder: Path, *, n_ranks: int, culprit: int, name: str, per_node: int, is_json: bool
) -> Scene:
    """Names with hosts, no prefix in common; sizes change with every step. The twin ended well."""
    steps = [
        call
        for n in range(30)
        for call in (Call("0", "all_reduce", (1024 + 37 * n,)), Call("0", "all_gather", (1025,)))
    ]
    job = FlightJob(world(n_ranks), {rank: list(steps) for rank in range(n_ranks)})
    healthy = FlightJob(world(n_ranks), {rank: list(steps) for rank in range(n_ranks)}).play()
    job.host_stops = {culprit: 41}
    job.play()
    for rank in range(n_ranks):
        node = "ABCDEFGH"[rank // per_node]
        for own, made in (("fault", job), ("twin", healthy)):
            document = made.dump(rank)
            for entry in document["entries"]:
                if entry["input_sizes"] == [[1025]]:
                    del entry["frames"]
            _write(folder / own, name.format(node=node, rank=rank), document, is_json=is_json)
    return Scene(folder / "fault", Expected(ABSENT, (culprit,)), folder / "twin")


def coalesced(
    folder: Path, *, n_ranks: int, culprit: int, n_batches: int, ends: bool, is_json: bool
) -> Scene:
    """Members of batches of sends and receives stay scheduled though the entry that ends the batch,
    or a later call, is over. The twin: the same, and nothing stands still."""
    calls = [Call("0", "all_reduce", (512,))] * (n_batches + 3)
    for name, stops in (("fault", {culprit: n_batches + 2}), ("twin", {})):
        job = FlightJob(world(n_ranks), {rank: list(calls) for rank in range(n_ranks)})
        job.host_stops = dict(stops)
        job.play()
        for rank in range(n_ranks):
            document = job.dump(rank)
            document["entries"] = list(
                _with_batches(document["entries"], rank, n_ranks, n_batches, ends=ends)
            )
            _write(folder / name, f"trace_{rank}", document, is_json=is_json)
    return Scene(folder / "fault", Expected(ABSENT, (culprit,)), folder / "twin")


def _with_batches(
    entries: Sequence[Document], rank: int, n_ranks: int, n_batches: int, *, ends: bool
) -> list[Document]:
    """With a batch of a send and a receive after the first reductions, of which no member ends."""
    made: list[Document] = []
    for n, entry in enumerate(entries):
        made.append(entry)
        if n >= n_batches:
            continue
        batch = {"is_p2p": True, "state": "scheduled", "retired": False, "p2p_seq_id": n + 1}
        ring = ((f"send {rank}->{(rank + 1) % n_ranks}"), (f"recv {rank}<-{(rank - 1) % n_ranks}"))
        names = [*ring, *["coalesced"] * ends]
        made += [
            entry | batch | {
                "profiling_name": f"nccl:{name}",
                "state": "completed" if name == "coalesced" else "scheduled",
            }
            for name in names
        ]  # fmt: skip
    return [one | {"record_id": n} for n, one in enumerate(made)]


def late_buffers(
    folder: Path, *, n_ranks: int, culprit: int, rings: tuple[int, ...], version: str
) -> Scene:
    """The buffers of the ranks begin at unlike calls. The twin is of a version that counted a batch
    as a collective on some ranks: its numbers do not line up, and nobody is named."""
    calls = [Call("0", "all_reduce", (64 * (n % 7 + 1),)) for n in range(200)]
    job = FlightJob(world(n_ranks), {rank: list(calls) for rank in range(n_ranks)})
    job.host_stops = {culprit: 150}
    job.play()
    for rank in range(n_ranks):
        ring = rings[rank % len(rings)]
        _write(folder / "fault", f"rank_{rank}", job.dump(rank, ring=ring), is_json=False)
        document = job.dump(rank, ring=ring, version=version)
        _write(folder / "twin", f"rank_{rank}", _shifted(document, rank), is_json=False)
    return Scene(
        folder / "fault", Expected(ABSENT, (culprit,)),
        folder / "twin", Expected(told=(codes.MISSING_NUMBERS,)),
    )  # fmt: skip


def _shifted(document: Document, rank: int) -> Document:
    """As an early version wrote it: on odd ranks a batch has counted as one more collective."""
    entries = document["entries"]
    send = entries[0] | {
        "is_p2p": True, "profiling_name": f"nccl:send {rank}->{rank ^ 1}", "p2p_seq_id": 1,
    }  # fmt: skip
    later = [
        one | {"collective_seq_id": one["collective_seq_id"] + rank % 2} for one in entries[1:]
    ]
    return document | {"entries": [send, *later]}


def equal_names(
    folder: Path, *, n_groups: int, group_size: int, culprit: int, n_bad: int, n_exchanges: int
) -> Scene:
    """Several groups of one name with other members; many mismatches, of which the first counts;
    exchanges of uneven parts; one rank's dump is empty. The twin: only uneven parts."""
    n_ranks = n_groups * group_size
    groups = {str(n): Group("inner", tuple(range(n * group_size, (n + 1) * group_size)))
              for n in range(n_groups)}  # fmt: skip

    def program(rank: int, *, is_odd: bool) -> list[Call]:
        name = str(rank // group_size)
        uneven = [Call(name, "all_to_all", (10 + rank + n,)) for n in range(n_exchanges)]
        sizes = range(100, 100 + n_bad)
        return [*uneven, *(Call(name, "all_reduce", (size + 1000 * is_odd,)) for size in sizes)]

    odd = {rank: program(rank, is_odd=rank == culprit) for rank in range(n_ranks)}
    even = {rank: program(rank, is_odd=False) for rank in range(n_ranks)}
    empty = n_ranks - 1
    for name, made in (
        ("fault", played(groups, odd, run_ahead=60)),
        ("twin", played(groups, even)),
    ):
        for rank in range(n_ranks):
            document = _same_name(made.dump(rank), is_empty=rank == empty)
            _write(folder / name, f"dump{rank}", document, is_json=True)
    return Scene(
        folder / "fault", Expected((Cause.SHAPE_MISMATCH,), (culprit,), told=(codes.SIGNATURE,)),
        folder / "twin", SILENT,
    )  # fmt: skip


def _same_name(document: Document, *, is_empty: bool) -> Document:
    """With one name for all groups, and without entries where the rank recorded none."""
    config = {"7": next(iter(document["pg_config"].values())) | {"name": "7"}}
    entries = [one | {"process_group": ["7", "inner"]} for one in document["entries"]]
    counters = {} if is_empty else document["pg_status"]
    own = {"pg_config": config, "pg_status": counters, "entries": [] if is_empty else entries}
    return document | own


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        106,
        "dumps of any name",
        any_names,
        tuple(
            {"n_ranks": n, "culprit": c, "name": name, "per_node": p, "is_json": j}
            for n, c, name, p, j in (
                (4, 2, "trace_node{node}_{rank}", 2, False),
                (8, 7, "{rank}.node-{node}.dump", 4, True),
                (6, 0, "host{node}.rank{rank}.pkl", 3, False),
            )
        ),
    ),
    FieldCase(
        107,
        "members of batches that are never marked complete",
        coalesced,
        tuple(
            {"n_ranks": n, "culprit": c, "n_batches": b, "ends": e, "is_json": j}
            for n, c, b, e, j in (
                (4, 1, 5, True, True),
                (2, 0, 9, False, False),
                (8, 6, 2, True, False),
            )
        ),
    ),
    FieldCase(
        108,
        "numbers that do not line up",
        late_buffers,
        tuple(
            {"n_ranks": n, "culprit": c, "rings": r, "version": v}
            for n, c, r, v in (
                (4, 3, (60, 20), "2.4"),
                (2, 1, (40, 90), "2.1"),
                (8, 0, (12, 100, 33), "2.4"),
            )
        ),
    ),
    FieldCase(
        109,
        "groups of one name",
        equal_names,
        tuple(
            {"n_groups": g, "group_size": s, "culprit": c, "n_bad": b, "n_exchanges": x}
            for g, s, c, b, x in ((2, 4, 1, 50, 3), (3, 3, 3, 11, 8), (4, 5, 12, 30, 1))
        ),
    ),
)
