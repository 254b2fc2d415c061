"""Tables of nccl-tests and rccl-tests: bandwidth of one collective by size.

The table does not say which collective it is of. The program's own line does where it is there
(``all_reduce_perf``), then the name of the file; else what the columns and the ratio of bus
bandwidth to algorithm bandwidth leave open is unknown (the factors stand in nccl-tests,
doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from comminsight.errors import InputError
from comminsight.format.host_lines import plain_lines
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.ops import Op

MAX_ROWS = 1 << 16
NEXT_STEP = "give what nccl-tests printed, with the lines that begin with #"
PROGRAMS = {
    "all_reduce": Op.ALL_REDUCE, "all_gather": Op.ALL_GATHER, "reduce_scatter": Op.REDUCE_SCATTER,
    "broadcast": Op.BROADCAST, "reduce": Op.REDUCE, "alltoall": Op.ALL_TO_ALL,
    "sendrecv": Op.SEND, "gather": Op.GATHER, "scatter": Op.SCATTER,
}  # fmt: skip
NAMES = {name.replace("_", ""): name for name in PROGRAMS}
_NAMED = re.compile("|".join(sorted(NAMES, key=len, reverse=True)))
_PROGRAM = re.compile(r"\b(" + "|".join(PROGRAMS) + r")_perf\b")
_DEVICE = re.compile(r"#\s+Rank\s+(\d{1,7})\s.*?\bPid\s+\d+\s+on\s+(\S+)\s+device\s")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_ROW = re.compile(r"\s+\d{1,18}\s", re.ASCII)
_HEADER = re.compile(r"#\s+size\s+count\s+type\b")
_HEAD = re.compile(rb"^.{0,80}#\s+size\s+count\s+type\b", re.MULTILINE)
NO_HOST = frozenset({"localhost", "hostname"})
FACTOR_SLACK = 0.02  # times and bandwidths are rounded to two digits
MIN_GBS = 1.0  # below, two digits tell no factor


@dataclass(slots=True)
class NcclTestTable:
    """One table. ``n_wrong`` counts results that the program found wrong, ``n_bad`` rows that do
    not read."""

    op: Op
    n_ranks: int
    hosts: tuple[str, ...]
    rows: list[BandwidthRow] = field(default_factory=list)
    n_bad: int = 0
    n_wrong: int = 0


def is_nccl_tests(head: bytes) -> bool:
    """True where the header of such a table is in it."""
    return b"size" in head and b"count" in head and _HEAD.search(head) is not None


def parse_nccl_tests(text: str, *, file_name: str = "", path: str = "") -> list[NcclTestTable]:
    """The tables in ``text``, in their order; ``file_name`` may tell the collective where nothing
    else does. Raises InputError where there is none with a row."""
    program = program_of_name(file_name)
    tables = [table for table in _tables(plain_lines(text), program) if table.rows]
    if not tables:
        raise InputError("no table of nccl-tests with a row", path=path, next_step=NEXT_STEP)
    return tables


def program_of_name(file_name: str) -> str:
    """The collective that the name of a file tells, "" where it tells none."""
    named = _NAMED.search(file_name.lower().replace("_", "").replace("-", ""))
    return NAMES[named[0]] if named is not None else ""


@dataclass(slots=True)
class MeasuredRow:
    """A row: bytes, redop and root as far as there are columns, (algbw, busbw), wrong results."""

    size_bytes: int
    redop: str
    root: int
    algbw_gbs: float
    busbw_gbs: float
    n_wrong: int


def _tables(lines: Iterable[str], program: str) -> Iterator[NcclTestTable]:
    devices: dict[int, str] = {}
    columns: list[str] = []
    raws: list[MeasuredRow] = []
    n_bad = 0
    for line in lines:
        if found := _PROGRAM.search(line):
            program = found[1]
        if (told := _DEVICE.search(line)) is not None:
            if columns:  # the next table begins
                yield table_of(program, devices, raws, n_bad)
                devices, columns, raws, n_bad = {}, [], [], 0
            devices[int(told[1])] = told[2]
        elif _HEADER.search(line):
            columns = line.replace("#", " ", 1).split()
        elif columns and _ROW.match(line):
            row = _raw(line.split(), columns)
            if row is None or len(raws) >= MAX_ROWS:
                n_bad += 1
            else:
                raws.append(row)
    yield table_of(program, devices, raws, n_bad)


def _raw(values: list[str], columns: list[str]) -> MeasuredRow | None:
    """A row by the names of its columns; None where it has another number of them."""
    if len(values) != len(columns):
        return None
    at = {name: n for n, name in reversed([*enumerate(columns)])}  # out of place comes first
    both = [n for n, name in enumerate(columns) if name == "busbw"]
    if "algbw" not in at or not both:
        return None
    bus = next((n for n in both if _number(values[n]) > 0), both[0])  # in place where that alone
    wrong = [values[n] for n, name in enumerate(columns) if name in {"#wrong", "wrong"}]
    root = values[at["root"]] if "root" in at else "-1"
    return MeasuredRow(
        size_bytes=int(values[0]),
        redop=values[at["redop"]] if "redop" in at else "none",
        root=int(root) if _WHOLE.fullmatch(root) else -1,
        algbw_gbs=_number(values[bus - 1]),
        busbw_gbs=_number(values[bus]),
        n_wrong=sum(int(text) for text in wrong if _WHOLE.fullmatch(text)),
    )


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else -1.0


def table_of(
    program: str, devices: Mapping[int, str], raws: list[MeasuredRow], n_bad: int
) -> NcclTestTable:
    """The table of these rows; ``program`` is the name of the collective, "" unknown, and
    ``devices`` the host of each rank."""
    n_ranks = len(devices)
    op = PROGRAMS.get(program) or _op_of(raws, n_ranks)
    hosts = tuple(sorted(set(devices.values()) - NO_HOST - {""}))
    found = NcclTestTable(op, n_ranks, hosts, n_bad=n_bad)
    for raw in raws:
        found.n_wrong += raw.n_wrong
        if raw.size_bytes and raw.busbw_gbs > 0:
            row = BandwidthRow(
                op=op, size_bytes=raw.size_bytes, busbw_gbs=raw.busbw_gbs, hosts=hosts,
                n_ranks=n_ranks,
            )  # fmt: skip
            found.rows.append(row)
    return found


def _op_of(raws: list[MeasuredRow], n_ranks: int) -> Op:
    """The op that alone has these columns and this factor; UNKNOWN where several have."""
    best = max(raws, key=lambda raw: raw.algbw_gbs, default=None)
    if best is None or best.algbw_gbs < MIN_GBS or n_ranks < 2:
        return Op.UNKNOWN
    factor, does_reduce = best.busbw_gbs / best.algbw_gbs, best.redop not in {"none", ""}
    if not does_reduce:
        is_one = abs(factor - 1) < FACTOR_SLACK and best.root >= 0
        return Op.BROADCAST if is_one else Op.UNKNOWN
    if best.root >= 0:
        return Op.REDUCE
    part = (n_ranks - 1) / n_ranks
    for op, its in ((Op.ALL_REDUCE, 2 * part), (Op.REDUCE_SCATTER, part)):
        if abs(factor / its - 1) < FACTOR_SLACK:
            return op
    return Op.UNKNOWN
