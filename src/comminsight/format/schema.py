"""Records of any version as records of this one: the dtype a header declares, and the upgrade.

A header is input from outside: it may name plain integers (in rows also fixed strings) inside the
declared record and nothing else, so that no header can make numpy read beyond a record or build
an object.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from comminsight.errors import FormatError
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.ops import (
    Algorithm,
    Backend,
    DType,
    Op,
    OpState,
    Protocol,
    RecordKind,
    RedOp,
    TimingSource,
)
from comminsight.model.ranges import MAX_MEMBERS

MAX_RECORD_BYTES = 65_536
MAX_FIELDS = 256

OP_ENUM_MAX: dict[str, int] = {
    "kind": max(RecordKind),
    "op": max(Op),
    "dtype": max(DType),
    "red_op": max(RedOp),
    "algo": max(Algorithm),
    "proto": max(Protocol),
    "state": max(OpState),
    "timing_source": max(TimingSource),
}
COMM_ENUM_MAX: dict[str, int] = {"backend": max(Backend)}
NOT_NEGATIVE = (
    "seq", "enqueue_ns", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "count", "size_bytes",
)  # fmt: skip
UNKNOWN_IS_MINUS_ONE = frozenset({"peer_or_root", "comm_rank"})

_INTEGER = re.compile(r"<[iu][248]|\|?[iu]1", re.ASCII)
_INTEGER_OR_STRING = re.compile(r"<[iu][248]|\|?[iu]1|\|?S[1-9]\d{0,3}", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class Layout(msgspec.Struct, frozen=True):
    """A record layout as a header states it: ``fields`` are (name, numpy type, byte offset)."""

    record_bytes: int
    fields: list[tuple[str, str, int]]


def dtype_of(layout: Layout, *, with_strings: bool = False) -> np.dtype[Any]:
    """The numpy dtype of ``layout``.

    Raises FormatError for other types than plain little-endian integers (and ``S`` strings where
    allowed), fields outside the record, and fields that share a name or a byte.
    """
    if not 1 <= layout.record_bytes <= MAX_RECORD_BYTES or len(layout.fields) > MAX_FIELDS:
        raise FormatError(f"{layout.record_bytes} bytes in {len(layout.fields)} fields a record")
    allowed = _INTEGER_OR_STRING if with_strings else _INTEGER
    end, names = 0, set()
    for name, form, offset in sorted(layout.fields, key=lambda entry: entry[2]):
        if not _NAME.fullmatch(name) or not allowed.fullmatch(form) or name in names:
            raise FormatError(f"field {name[:64]!r} of type {form[:16]!r} is not allowed here")
        if offset < end or offset + np.dtype(form).itemsize > layout.record_bytes:
            raise FormatError(f"field {name!r} overlaps another or leaves the record")
        end = offset + np.dtype(form).itemsize
        names.add(name)
    return np.dtype(
        {
            "names": [name for name, _, _ in layout.fields],
            "formats": [form for _, form, _ in layout.fields],
            "offsets": [offset for _, _, offset in layout.fields],
            "itemsize": layout.record_bytes,
        }
    )


def upgrade_records(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """``rows`` as OP_DTYPE without impossible ones, and how many those were.

    Rows of this version are neither copied nor changed as long as all of them are sound. Missing
    fields are 0 (unknown), enumeration values of a newer version too. Impossible are a ``seq``
    below 1 and negative times, counts and sizes.
    """
    current = rows if rows.dtype == OP_DTYPE else _copy_fields(rows, OP_DTYPE)
    if _SOUNDNESS.holds(current):
        return current, 0
    good = current["seq"] > 0
    for name in NOT_NEGATIVE:
        good &= current[name] >= 0
    kept = current[good]
    _forget_unknown_enums(kept, OP_ENUM_MAX)
    return kept, len(current) - len(kept)


def convert_records(rows: np.ndarray) -> np.ndarray:
    """``rows`` as a fresh array of OP_DTYPE, all of them: for ops that have no ``seq`` yet."""
    current = rows.copy() if rows.dtype == OP_DTYPE else _copy_fields(rows, OP_DTYPE)
    _forget_unknown_enums(current, OP_ENUM_MAX)
    return current


def upgrade_comms(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """``rows`` as a fresh array of COMM_DTYPE, and how many stated an impossible size or rank.

    Missing fields and unknown backends are 0; an impossible size or rank is unknown.
    """
    current = rows.copy() if rows.dtype == COMM_DTYPE else _copy_fields(rows, COMM_DTYPE)
    _forget_unknown_enums(current, COMM_ENUM_MAX)
    bad_size = (current["comm_size"] < 0) | (current["comm_size"] > MAX_MEMBERS)
    bad_rank = (current["comm_rank"] < -1) | (current["comm_rank"] >= MAX_MEMBERS)
    current["comm_size"][bad_size] = 0
    current["comm_rank"][bad_rank] = -1
    return current, int(np.count_nonzero(bad_size | bad_rank))


def _copy_fields(rows: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    """A copy in the layout ``target``: fields by name, the rest unknown."""
    out = np.zeros(len(rows), target)
    for name in target.names or ():
        if rows.dtype.names and name in rows.dtype.names:
            out[name] = _fit(rows[name], target[name])
        elif name in UNKNOWN_IS_MINUS_ONE:
            out[name] = -1
        elif name == "seq_low":
            out[name] = out["seq"] & 0xFFFFFFFF
    return out


def _fit(column: np.ndarray, target: np.dtype[Any]) -> np.ndarray:
    """``column`` with values that ``target`` cannot hold set to 0; strings are cut by numpy."""
    if column.dtype.kind == "S" or target.kind == "S":
        same_kind = column.dtype.kind == target.kind
        return column if same_kind else np.zeros(len(column), target)
    if np.can_cast(column.dtype, target, "safe"):
        return column
    limits = np.iinfo(target)
    fits = (column >= limits.min) & (column <= limits.max)
    return np.where(fits, column, 0)


def _forget_unknown_enums(rows: np.ndarray, highest: dict[str, int]) -> None:
    for name, limit in highest.items():
        column = rows[name]
        column[column > limit] = 0


class _Soundness:
    """Whether all records of a batch are possible, in four passes over whole 8-byte words.

    A record is 16 words. A signed field is negative when the top bit of its word is set, ``seq``
    is below 1 when that of ``seq - 1`` is. An enumeration byte exceeds its limit when its top bit
    is set, or is set after adding (127 - limit); a carry from the byte below can only raise it,
    which costs a needless second look and hides nothing. Column by column would read every cache
    line once per column.
    """

    BLOCK_RECORDS = 512  # 64 KiB and as much scratch: stays in the second-level cache

    def __init__(self) -> None:
        bias, mask = np.zeros(1, OP_DTYPE), np.zeros(1, OP_DTYPE)
        bias["seq"] = -1
        for name, limit in OP_ENUM_MAX.items():
            bias[name], mask[name] = 127 - limit, 128
        for name in NOT_NEGATIVE:
            mask[name] = np.iinfo(np.int64).min
        self._bias = np.repeat(bias, self.BLOCK_RECORDS).view(np.uint64)
        self._mask = np.repeat(mask, self.BLOCK_RECORDS).view(np.uint64)

    def holds(self, rows: np.ndarray) -> bool:
        """Whether no record has an impossible value or an unknown enumeration value."""
        if not rows.flags.c_contiguous:
            return False
        words = rows.view(np.uint64)
        scratch = np.empty_like(self._bias)
        for begin in range(0, len(words), len(scratch)):
            block = words[begin : begin + len(scratch)]
            suspect = scratch[: len(block)]
            np.add(block, self._bias[: len(block)], out=suspect)
            np.bitwise_or(suspect, block, out=suspect)
            np.bitwise_and(suspect, self._mask[: len(block)], out=suspect)
            if suspect.any():
                return False
        return True


_SOUNDNESS = _Soundness()
