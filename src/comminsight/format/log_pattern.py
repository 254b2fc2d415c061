"""What a row of the pattern tables is: a code, a word to look for first, and a regular expression.

Named groups become the values of the event; ``KINDS`` says of what kind each name is. Every
repetition in an expression is bounded, so that a hostile line costs no more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from comminsight.model.log_event import LogCode, LogValue
from comminsight.model.ranges import MAX_MEMBERS

MAX_INT = (1 << 63) - 1
MAX_VALUE_CHARS = 256
ORIGIN_NAMES = frozenset({"host", "pid", "tid", "rank", "local_rank", "comm_rank", "task"})
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

    def read(self, text: str) -> Values | None:
        """The values in ``text``; None where it is another line.

        Raises AbsurdNumberError for a number that cannot be.
        """
        if self.needle not in text or (match := self.regex.search(text)) is None:
            return None
        values = {
            name: KINDS[name](found)
            for name, found in match.groupdict().items()
            if found is not None
        }
        if self.mend is not None:
            self.mend(values)
        return values


def table(*rows: tuple[LogCode, str, str]) -> tuple[Pattern, ...]:
    """The compiled rows."""
    return tuple(Pattern(code, needle, re.compile(regex, re.ASCII)) for code, needle, regex in rows)


def first_match(patterns: tuple[Pattern, ...], text: str) -> tuple[LogCode, Values] | None:
    """Code and values of the first row that ``text`` is of."""
    for pattern in patterns:
        values = pattern.read(text)
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


NUMBERS = (
    "count cpu datatype exit_code expected_bytes gid_index kilobytes last_completed "
    "last_enqueued last_started local_size_bytes milliseconds n_bytes n_events number "
    "numel_in numel_out other_seq pid port ran_ms received_bytes red_op remote_size_bytes "
    "result seconds seq signal size_bytes status tid timeout_ms timeout_s vendor_error "
    "waited_ms xid"
)
RANKS = (
    "channel child_count comm_local_rank comm_rank cuda_device from_rank local_rank "
    "local_ranks n_channels n_coll_channels n_expected n_joined n_nodes n_p2p_channels "
    "n_ranks near_rank next_rank other_comm_rank peer_rank prev_rank remote_rank root "
    "signalling_rank task to_rank"
)
HEXADECIMALS = "bus_id comm comm_hash parent stream"
TEXTS = (
    "address algo call detail device devices direction dtype error error_name event exception "
    "file host interface job key keys kind library link_state local_gid mask message name "
    "network op other_dtype other_op other_shape pattern peer pg pg_id process proto reason "
    "remote_gid server shape signal_name source state step tasks transport tree value version "
    "when worker_exit"
)
KINDS: dict[str, Callable[[str], LogValue]] = {
    **dict.fromkeys(NUMBERS.split(), number),
    **dict.fromkeys(RANKS.split(), rank_number),
    **dict.fromkeys(HEXADECIMALS.split(), hex_text),
    **dict.fromkeys(TEXTS.split(), words),
    "op_count": hex_number,
    "ranks": rank_list,
}
