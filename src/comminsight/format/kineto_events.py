"""Events of a PyTorch profiler trace as they are decoded, and values that may be of any kind."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from comminsight.model.ranges import MAX_MEMBERS, range_compress

MAX_RANK = 1 << 24
MAX_NS = 1 << 62
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


class Args(msgspec.Struct, gc=False):
    """What an event may state beside its times; every value may be of any kind."""

    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    stream: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    n_in: Any = msgspec.field(default=None, name="In msg nelems")
    n_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    desc: Any = msgspec.field(default=None, name="Process Group Description")
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")


class Event(msgspec.Struct, gc=False):
    """One event; times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


def whole_number(value: Any, limit: int) -> int:
    """``value`` as a number in 0 ... limit - 1, also where it is written as text; else -1."""
    if type(value) is int:  # nearly always
        return value if 0 <= value < limit else -1
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < limit else -1


def nanoseconds(value: Any) -> int | None:
    """A stamp or duration in microseconds, number or text, as ns; None for what is no time."""
    if isinstance(value, str):
        try:
            value = float(value[:32])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -MAX_NS < value * 1000 < MAX_NS:  # false for what is not a number, too
        return None
    whole = int(value)
    return whole * 1000 + round((value - whole) * 1000)


def members_of(ranks: Any) -> str:
    """Ranks, given as a list or as the text of one, in short; "" unknown or cut."""
    if isinstance(ranks, str):
        ranks = [] if "..." in ranks else [int(text) for text in _NUMBER.findall(ranks)]
    if not isinstance(ranks, list) or len(ranks) > MAX_MEMBERS:
        return ""
    numbers = [whole_number(rank, MAX_RANK) for rank in ranks]
    return "" if -1 in numbers else range_compress(numbers)
