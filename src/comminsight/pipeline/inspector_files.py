"""Files of NCCL's Inspector as evidence: which ops left no record, and what they cannot tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comminsight.diagnosis import codes_trace as codes
from comminsight.diagnosis.codes import message
from comminsight.errors import InputError
from comminsight.format.inspector_batch import (
    InspectorProcess,
    by_process,
    common_ranks,
    timed_ops,
)
from comminsight.format.inspector_json import DROPPED, NEXT_STEP, PROXY, read_inspector
from comminsight.format.inspector_rows import (
    ABSURD_SIZE,
    NO_SERIAL,
    NOT_FINITE,
    ROW_DTYPE,
    UNKNOWN_OP,
)
from comminsight.format.regular_file import open_regular
from comminsight.model.activity import NumberedOps
from comminsight.model.event import OP_DTYPE
from comminsight.model.imported import ImportClock, ImportedRank
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.ops import P2P_OPS, Op
from comminsight.model.verdict import Message

MAX_NUMBERS = 1 << 20  # of one communicator and function, on one rank
NO_TIME = "no_start_time"
INFERRED = ("global_rank", "world_size", "op_seq", "match_seq")
_VALUES = frozenset({ABSURD_SIZE, NO_SERIAL, NOT_FINITE, UNKNOWN_OP})


@dataclass(frozen=True, slots=True, eq=False)
class InspectorEvidence:
    """What the files of a job tell; ``processes`` are by host and number. ``world_size`` and
    ``ranks`` are inferred: those of the largest communicator."""

    processes: tuple[InspectorProcess, ...] = ()
    counts: Counter[str] | None = None
    unread: tuple[UnreadFile, ...] = ()
    numbered: tuple[NumberedOps, ...] = ()
    world_size: int = 0
    ranks: tuple[int, ...] = ()
    missing: tuple[Message, ...] = ()


def inspector_evidence(paths: Iterable[Path]) -> InspectorEvidence:
    """The evidence in ``paths``. A file that does not read is named; the others are read."""
    parts: dict[tuple[str, int], list[InspectorProcess]] = defaultdict(list)
    counts: Counter[str] = Counter()
    unread = []
    for path in paths:
        try:
            for one in _read(path, counts):
                parts[one.host, one.pid].append(one)
        except InputError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))
        except OSError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.unreadable")))
    processes = tuple(_joined(own) for _, own in sorted(parts.items()))
    ranks, world_size = common_ranks(processes)
    numbered = tuple(_numbered(processes, ranks))
    return InspectorEvidence(
        processes, counts, tuple(unread), numbered, world_size, tuple(sorted(ranks.values())),
        tuple(_missing(processes, counts)) if processes else (),
    )  # fmt: skip


def inspector_ranks(paths: Iterable[Path]) -> tuple[ImportedRank, ...]:
    """The ops that have a time, of each rank that is known, by rank."""
    found = inspector_evidence(paths)
    ranks, world_size = common_ranks(found.processes)
    return tuple(
        _imported(one, ranks[one.host, one.pid], world_size)
        for one in sorted(found.processes, key=lambda one: ranks.get((one.host, one.pid), -1))
        if (one.host, one.pid) in ranks
    )


def _imported(process: InspectorProcess, rank: int, world_size: int) -> ImportedRank:
    ops, comms = timed_ops(process, rank)
    n_left = len(process.rows) - len(ops)
    return ImportedRank(
        global_rank=rank, ops=ops if len(ops) else np.zeros(0, OP_DTYPE), comms=comms,
        source=f"{process.host}-pid{process.pid}", world_size=world_size, host=process.host,
        clock=ImportClock.EPOCH, n_read=len(process.rows),
        dropped={NO_TIME: n_left} if n_left else {}, inferred=INFERRED,
    )  # fmt: skip


def _read(path: Path, counts: Counter[str]) -> list[InspectorProcess]:
    opened = open_regular(path)
    if opened is None:
        raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
    with opened as stream:
        records = read_inspector(stream, path=str(path))
    counts.update(records.counts)
    return by_process(records.rows, records.contexts)


def _joined(parts: Sequence[InspectorProcess]) -> InspectorProcess:
    """One process of its parts, in the order in which they were given."""
    first = parts[0]
    if len(parts) == 1:
        return first
    contexts = tuple(dict.fromkeys(one for part in parts for one in part.contexts))
    place = {one: n for n, one in enumerate(contexts)}
    rows = np.zeros(sum(len(part.rows) for part in parts), ROW_DTYPE)
    at = 0
    for part in parts:
        own = rows[at : at + len(part.rows)]
        own[:] = part.rows
        own["context"] = np.array([place[one] for one in part.contexts])[part.rows["context"]]
        at += len(part.rows)
    return InspectorProcess(first.host, first.pid, rows, contexts)


_Serials = dict[tuple[str, str, int], list[tuple[int, np.ndarray]]]


def _numbered(
    processes: Sequence[InspectorProcess], ranks: dict[tuple[str, int], int]
) -> Iterator[NumberedOps]:
    """Of each function of a communicator whose ranks do not all have the same numbers, those that
    each has."""
    by_function: _Serials = defaultdict(list)
    for one in processes:
        if (rank := ranks.get((one.host, one.pid), -1)) >= 0:
            for (comm, name, op), serials in _serials(one):
                by_function[comm, name, op].append((rank, serials))
    for (comm, name, op), own in sorted(by_function.items()):
        first = own[0][1]
        if all(np.array_equal(first, other) for _, other in own[1:]):
            continue
        for rank, serials in own:
            if len(serials) <= MAX_NUMBERS:
                label = f"{name or comm}:{Op(op).name.lower()}"
                yield NumberedOps(
                    global_rank=rank, comm_label=label, numbers=tuple(serials.tolist())
                )


def _serials(process: InspectorProcess) -> Iterator[tuple[tuple[str, str, int], np.ndarray]]:
    """The numbers of each function of each communicator, ascending, each once. P2P ops are counted
    by the plugin itself, on each rank by itself."""
    rows = process.rows
    usable = (rows["sn"] >= 0) & (rows["op"] > 0) & ~np.isin(rows["op"], list(P2P_OPS))
    keys = rows["context"].astype(np.int64) << 8 | rows["op"]
    for key in np.unique(keys[usable]).tolist():
        context = process.contexts[key >> 8]
        name = "" if context.comm_name == "unknown" else context.comm_name
        yield (context.id, name, key & 0xFF), np.unique(rows["sn"][usable & (keys == key)])


def _missing(processes: Sequence[InspectorProcess], counts: Counter[str]) -> Iterator[Message]:
    """Every known shortcoming of these files, by name."""
    n_untimed = sum(len(one.rows) - len(timed_ops(one, -1)[0]) for one in processes)
    if n_untimed:
        yield message(codes.INSPECTOR_STARTS, n=n_untimed)
    yield message(codes.INSPECTOR_ORDER)
    yield message(codes.INSPECTOR_RANKS)
    sizes = [int(one.rows["size_bytes"].min()) for one in processes if len(one.rows)]
    if sizes and min(sizes) > 0:
        yield message(codes.INSPECTOR_SIZES, size=min(sizes))
    n_values = sum(n for code, n in counts.items() if code in _VALUES)
    n_lines = sum(n for code, n in counts.items() if code not in _VALUES | {DROPPED, PROXY})
    n_holes = sum(
        int(serials[-1] - serials[0]) + 1 - len(serials)
        for one in processes
        for _, serials in _serials(one)
    )
    for code, n in (
        (codes.INSPECTOR_LINES, n_lines), (codes.INSPECTOR_VALUES, n_values),
        (codes.INSPECTOR_DROPPED, counts[DROPPED]), (codes.INSPECTOR_HOLES, n_holes),
    ):  # fmt: skip
        if n:
            yield message(code, n=n)
