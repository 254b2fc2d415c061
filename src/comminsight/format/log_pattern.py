"""What a row of the pattern tables is: a code, a word to look for first, and a regular expression.

Named groups become the values of the event; ``KINDS`` says of what kind each name is. Every
repetition in an expression is bounded, so that a hostile line costs no more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from comminsight.model.log_event import LogCode, LogValue
from comminsight.model.ranges import MAX_MEMBERS

MAX_INT = (1 << 63) - 1
MAX_VALUE_CHARS = 256
MAX_LIST_CHARS = 4096
ORIGIN_NAMES = frozenset({"host", "pid", "tid", "rank", "local_rank", "comm_rank", "task"})
DIGITS = re.compile(r"\\d\{1,\d{1,3}\}", re.ASCII)
WHOLE = r"\g<0>(?!\\d)"
Values = dict[str, LogValue]


class AbsurdNumberError(Exception):
    """A number that cannot be what it stands for."""


@dataclass(slots=True, frozen=True)
class Pattern:
    """One row. ``mend`` takes out of the values what cannot be trusted."""

    code: LogCode
    needle: str
    regex: re.Pattern[str]
    mend: Callable[[Values], None] | None = None
    kinds: tuple[tuple[str, int, Callable[[str], LogValue]], ...] = field(init=False)

    def __post_init__(self) -> None:
        places = self.regex.groupindex.items()
        kinds = tuple((name, place - 1, KINDS[name]) for name, place in places)
        object.__setattr__(self, "kinds", kinds)

    def read(self, text: str, *, is_torn: bool = False) -> Values | None:
        """The values in ``text``; None where it is another line. Of a line whose end is not there
        the value that stands last is left out: a part of a number is another number.

        Raises AbsurdNumberError for a number that cannot be.
        """
        if self.needle not in text or (match := self.regex.search(text)) is None:
            return None
        found = match.groups()
        values = {
            name: kind(told)
            for name, place, kind in self.kinds
            if (told := found[place]) is not None and not (is_torn and match.end(name) == len(text))
        }
        if "pid" in self.regex.groupindex:  # it speaks of a process, which is not the writer
            values.setdefault("pid", -1)
        if self.mend is not None:
            self.mend(values)
        return values


def table(*rows: tuple[LogCode, str, str]) -> tuple[Pattern, ...]:
    """The compiled rows. A number is read whole or not at all: its first digits are another one."""
    return tuple(
        Pattern(code, needle, re.compile(DIGITS.sub(WHOLE, regex), re.ASCII))
        for code, needle, regex in rows
    )


def first_match(
    patterns: tuple[Pattern, ...], text: str, *, is_torn: bool = False
) -> tuple[LogCode, Values] | None:
    """Code and values of the first row that ``text`` is of."""
    for pattern in patterns:
        values = pattern.read(text, is_torn=is_torn)
        if values is not None:
            return pattern.code, values
    return None


def number(found: str) -> int:
    """A decimal number that 64 bits hold."""
    if abs(value := int(found)) > MAX_INT:
        raise AbsurdNumberError
    return value


def rank_number(found: str) -> int:
    """A rank, a size or a device: none is beyond ``MAX_MEMBERS``."""
    if not -1 <= (value := int(found)) <= MAX_MEMBERS:
        raise AbsurdNumberError
    return value


def hex_number(found: str) -> int:
    """A number in hexadecimal, as the bits of 64; "(nil)" is 0."""
    if found == "(nil)":
        return 0
    if (value := int(found, 16)) > (1 << 64) - 1:
        raise AbsurdNumberError
    return value


def hex_text(found: str) -> str:
    """A pointer or hash in one form: 64 bits do not fit into the integers of JSON readers."""
    return f"{hex_number(found):#x}"


def rank_list(found: str) -> tuple[int, ...]:
    """Ranks between commas or blanks."""
    return tuple(rank_number(one) for one in re.findall(r"-?\d{1,10}", found, re.ASCII))


def words(found: str) -> str:
    """A text, at most ``MAX_VALUE_CHARS`` long."""
    return found.strip()[:MAX_VALUE_CHARS]


def long_list(found: str) -> str:
    """A list of devices: those of a host with many are longer than other texts."""
    return found.strip()[:MAX_LIST_CHARS]


NUMBERS = (
    "count cpu datatype done_pct exit_code expected_bytes gid_index last_completed "
    "last_enqueued last_started local_size_bytes n_attempts n_bytes n_events "
    "n_left n_running n_waiting number numel_in numel_out other_seq pid port ran_ms "
    "received_bytes red_op remote_size_bytes result rss_kib seq signal size_bytes status stuck_s "
    "tid timeout_ms timeout_s vendor_error waited_ms xid"
)
RANKS = (
    "channel child_count comm_local_rank comm_rank cuda_device from_rank local_rank nvml_device "
    "local_ranks n_channels n_coll_channels n_expected n_joined n_nodes n_p2p_channels "
    "n_ranks near_rank next_rank other_comm_rank peer_rank prev_rank remote_rank root "
    "signalling_rank task to_rank"
)
HEXADECIMALS = "bus_id comm comm_hash parent stream"
TEXTS = (
    "address algo architecture bandwidths call capacity detail device direction dtype "
    "error error_name event exception file host interface job key keys kind library link_state "
    "local_gid mask message name network op other_dtype other_op other_shape pattern peer pg "
    "pg_guid pg_id process proto reason remote_gid server shape signal_name source state step "
    "tasks transport tree unit value version when worker_exit"
)
UNIT_MS = {"ms": 1, "s": 1000, "sec": 1000, "min": 60_000, "h": 3_600_000}
UNIT_BYTES = {f"{unit}iB": 1 << 10 * power for power, unit in enumerate(("", "K", "M", "G", "T"))}


def duration_ms(found: str) -> int:
    """A duration with its unit, as c10d prints one."""
    digits = found.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNIT_MS.get(found[len(digits) :])
    if unit is None or not digits.isdigit():
        raise AbsurdNumberError
    return number(digits) * unit


def size_of(found: str) -> int:
    """A size with its unit in bytes, as CUDA's allocator prints one: to two places."""
    size, _, unit = found.partition(" ")
    try:
        return round(float(size) * UNIT_BYTES[unit if unit != "B" else "iB"])
    except (ValueError, KeyError, OverflowError) as error:
        raise AbsurdNumberError from error


# the same few numbers stand in most lines of a log
_KEPT = lru_cache(maxsize=1 << 12)
KINDS: dict[str, Callable[[str], LogValue]] = {
    **dict.fromkeys(NUMBERS.split(), _KEPT(number)),
    **dict.fromkeys(RANKS.split(), _KEPT(rank_number)),
    **dict.fromkeys(HEXADECIMALS.split(), _KEPT(hex_text)),
    **dict.fromkeys(TEXTS.split(), words),
    "devices": long_list,
    "duration_ms": duration_ms,
    "op_count": hex_number,
    "tokens_per_s": float,
    "total_s": float,
    "wanted_bytes": size_of,
    "ranks": rank_list,
}
