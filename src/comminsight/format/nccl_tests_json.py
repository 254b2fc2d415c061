"""Results of nccl-tests in the JSON that ``-J FILE`` makes it write (src/util.cu, versions 2 to 4).

The environment that stands in it is not kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.format.nccl_tests import (
    MAX_ROWS,
    PROGRAMS,
    MeasuredRow,
    NcclTestTable,
    program_of_name,
    table_of,
)

NEXT_STEP = "give the whole file that nccl-tests -J wrote: a test that was killed left a part of it"
MAX_RANK = 1 << 23
_HEAD = re.compile(
    rb'\s*\{\s*"version"\s*:\s*\d{1,6}\s*,\s*"start_time"\s*:\s*"[^"]{0,64}"\s*,\s*"args"\s*:\s*\['
)
_PROGRAM = re.compile(r"(?:.{0,4096}/)?(" + "|".join(PROGRAMS) + r")_perf(?:_mpi)?")
_WHOLE = re.compile(r"\s*-?\d{1,9}\s*", re.ASCII)


class _Config(msgspec.Struct, frozen=True):
    devices: list[dict[str, object]] = []


class _Report(msgspec.Struct, frozen=True):
    args: list[str] = []
    config: _Config = _Config()
    results: list[dict[str, object]] = []


def is_nccl_tests_json(head: bytes) -> bool:
    """True for a file that begins as nccl-tests begins it."""
    return _HEAD.match(head) is not None


def parse_nccl_tests_json(text: str, *, file_name: str = "", path: str = "") -> NcclTestTable:
    """The one table in it; raises InputError for what does not read and where no row does."""
    data = text.encode("utf-8", "replace")
    report = read_document(data, _Report, path=path, next_step=NEXT_STEP)
    named = _PROGRAM.fullmatch(report.args[0]) if report.args else None
    rows = [_row(one) for one in report.results[:MAX_ROWS]]
    good = [row for row in rows if row is not None]
    if not good:
        raise InputError("no result with a bandwidth", path=path, next_step=NEXT_STEP)
    program = named[1] if named is not None else program_of_name(file_name)
    n_bad = len(report.results) - len(good)
    return table_of(program, dict(_devices(report.config.devices)), good, n_bad)


def _devices(listed: Iterable[dict[str, object]]) -> Iterator[tuple[int, str]]:
    for one in listed:
        rank, host = one.get("rank"), one.get("hostname")
        if isinstance(rank, int) and 0 <= rank <= MAX_RANK:
            yield rank, host if isinstance(host, str) else ""


def _row(one: dict[str, object]) -> MeasuredRow | None:
    """Out of place, in place where that alone was measured; None without size or bandwidth."""
    size, redop, root = one.get("size"), one.get("redop"), str(one.get("root", "-1"))
    both = [
        part for name in ("out_of_place", "in_place") if isinstance(part := one.get(name), dict)
    ]
    measured = [(_number(part.get("alg_bw")), _number(part.get("bus_bw"))) for part in both]
    told = next(((alg, bus) for alg, bus in measured if bus > 0), None)
    if told is None or not isinstance(size, int) or not 0 <= size < 1 << 63:
        return None
    return MeasuredRow(
        size_bytes=size,
        redop=redop if isinstance(redop, str) else "none",
        root=int(root) if _WHOLE.fullmatch(root) else -1,
        algbw_gbs=told[0],
        busbw_gbs=told[1],
        n_wrong=sum(max(0, round(_number(part.get("nwrong")))) for part in both),
    )


def _number(value: object) -> float:
    """A number of the program, -1 for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(str(value)) if is_number else -1.0
    return number if math.isfinite(number) and number < 1e18 else -1.0
