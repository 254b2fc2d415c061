"""Whatever the bytes: events or counts, never an exception, within bounded time and memory."""

from __future__ import annotations

import contextlib
import io
import re
import time
import tracemalloc
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.errors import InputError
from comminsight.format import log_joined, log_nccl, log_prefix, log_reader
from comminsight.format.expanding import GZIP, ZSTD
from comminsight.format.log_joined import Joiner
from comminsight.format.log_reader import GATES, PLAIN, LogReader
from comminsight.model.log_event import LogEvent, LogTally
from tests.builders.logs import WRAPS, samples

LINES = [
    put(sample.line).encode() for sample in samples(1) for put, _where in list(WRAPS.values())[::3]
]
TEXTS = [
    b"Traceback (most recent call last):", b'  File "/a.py", line 3, in f', b"ValueError: x",
    b"Failures:", b"Root Cause (first observed failure):", b"  time      : 2026-04-14_16:17:16",
    b"  rank      : 3 (local_rank: 3)", b"  exitcode  : -9 (pid: 7)", b"  Process name: [[1,1],3]",
]  # fmt: skip
CONVERTED = {"op_count", "wanted_bytes", "duration_ms", "n_frames"}
MAX_SECONDS_PER_MB = 8  # ten times what it takes; quadratic work takes hours


def read(data: bytes) -> tuple[list[LogEvent], LogTally]:
    reader = LogReader(io.BytesIO(data), file="x.log")
    events = list(reader)
    for event in events:
        reader.clock.placed(event.time, file_time_ns=1_776_183_436 * 10**9)
    return events, reader.tally


def assert_whole(events: list[LogEvent], tally: LogTally) -> None:
    parts = (tally.n_emitted, tally.n_unknown, tally.n_truncated, tally.n_refused)
    assert sum(parts) == tally.n_read
    assert tally.n_events == len(events)
    assert all(1 <= event.first_line <= event.line <= tally.n_read for event in events)
    assert all(len(event.text) <= log_reader.MAX_TEXT_CHARS for event in events)


def pieces() -> st.SearchStrategy[bytes]:
    """Lines as they are, torn, glued, with foreign bytes in them, and nothing of the kind."""
    line = st.sampled_from(LINES + TEXTS)
    torn = st.builds(lambda one, end: one[:end], line, st.integers(0, 200))
    behind = st.builds(lambda one, begin: one[begin:], line, st.integers(0, 60))
    noise = st.binary(max_size=40)
    return st.one_of(line, torn, behind, noise, st.just(b"\n"), st.just(b"\r"), st.just(b"\0"))


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(pieces(), st.sampled_from([b"\n", b"", b" ", b"\r\n"])), max_size=40))
def test_torn_and_mixed_lines_give_events_or_counts(made: list[tuple[bytes, bytes]]) -> None:
    data = b"x" + b"".join(one + end for one, end in made)
    events, tally = read(data)
    assert_whole(events, tally)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=2000))
def test_any_bytes_give_events_or_counts(data: bytes) -> None:
    if data.startswith((GZIP, ZSTD)):
        with contextlib.suppress(InputError):
            read(data)
        return
    assert_whole(*read(data))


@pytest.mark.parametrize("n_digits", [0, 1, 3, 7, 30])
@pytest.mark.parametrize("digit", "09")
def test_a_number_is_read_whole_or_not_at_all(n_digits: int, digit: str) -> None:
    more = digit.encode() * n_digits
    data = b"\n".join(
        re.sub(rb"(?<![\w.])\d+(?![\w.])", lambda found: found[0] + more, one) for one in LINES
    )
    whole = {int(found) for found in re.findall(rb"\d+", data)}
    events, _tally = read(data)
    for event in events:
        numbers = {
            abs(value)
            for name, value in event.values.items()
            if isinstance(value, int) and name not in CONVERTED
        }
        assert numbers <= whole | {0}, event.text
    assert len(events) > 300 or n_digits > 1


HOSTILE = {
    "one class": b"a" * 40,
    "digits": b"1" * 40,
    "brackets": b"[1,",
    "open": b"((((",
    "colons": b":1:1:1 [0] ",
    "frames": b'  File "',
    "words": b"a.b:1 -> ",
    "blanks": b"    ",
    "dates": b"2026-04-14 16:17:16,",
}
NEEDLES = b" ".join(dict.fromkeys(row.needle.encode() for row in PLAIN + log_nccl.INFO))
HEADS = {
    "bare": b"",
    "NCCL": b"amber:1:2 [0] NCCL INFO ",
    "traceback": b"Traceback (most recent call last):\n",
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_megabyte_takes_no_longer_than_its_length(kind: str, head: str) -> None:
    unit = HOSTILE[kind]
    line = HEADS[head] + NEEDLES + unit * (16_000 // len(unit)) + NEEDLES
    data = (line + b"\n") * ((1 << 20) // len(line))
    begin = time.process_time()
    events, tally = read(data)
    seconds = time.process_time() - begin
    assert_whole(events, tally)
    assert seconds < MAX_SECONDS_PER_MB


def test_a_single_endless_line_takes_no_memory() -> None:
    reader = LogReader(Endless(64 << 20))
    tracemalloc.start()
    assert list(reader) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reader.tally.n_truncated == 1
    assert peak < 4 << 20


class Endless:
    """A stream of one line that nobody holds in memory."""

    def __init__(self, size_bytes: int) -> None:
        self.left = size_bytes

    def read(self, size: int, /) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return b"NCCL " * (size // 5) + b"x" * (size % 5)


def test_the_memory_for_unfinished_texts_is_bounded() -> None:
    joiner = Joiner()
    for rank in range(3 * log_joined.MAX_OPEN):
        origin, _text = log_prefix.split(f"[rank{rank}]: x")
        for text in ("Traceback (most recent call last):", "Failures:", "  time      : ",
                     "Root Cause (first observed failure):", "  host      : a",
                     "  Process name: [[1,1],3]"):  # fmt: skip
            joiner.take(origin.key, rank, text)
    n_tables = len(joiner.rows) + len(joiner.roots) + len(joiner.mpi)
    assert len(joiner.tracebacks) + n_tables <= 2 * log_joined.MAX_OPEN + 1


def repeats(node: object) -> list[tuple[int, object]]:
    """The largest count and the body of every repetition in a parsed expression."""
    found: list[tuple[int, object]] = []
    for op, argument in node:  # type: ignore[attr-defined]
        if op in {ops.MAX_REPEAT, ops.MIN_REPEAT}:
            found.append((argument[1], argument[2]))
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            for one in part if isinstance(part, list) else (part,):
                if isinstance(one, parser.SubPattern):
                    found += repeats(one)
    return found


def test_every_repetition_is_bounded() -> None:
    tables = [pattern for table in log_prefix.TABLES.values() for pattern, _take in table]
    rows = [row.regex for row in PLAIN + log_nccl.INFO + log_nccl.WARN]
    for regex in {*tables, *rows, log_joined.EXCEPTION, log_joined.FRAME, log_nccl.HEADER}:
        unbounded = [
            body
            for most, body in repeats(parser.parse(regex.pattern))
            if most == ops.MAXREPEAT and len(body) == 1 and body[0][0] is not ops.LITERAL  # type: ignore[arg-type,index]
        ]
        assert unbounded == [], regex.pattern


def test_lines_of_which_none_is_known_are_passed_over_quickly() -> None:
    """A tenth of the speed that an idle core reaches, so that a loaded machine passes too."""
    line = b"step 12 | loss 2.5071 | grad norm 0.31 | tokens per second 51200 | memory 61.2 GB\n"
    assert GATES.isdisjoint(line.split())
    data = line * 100_000
    begin = time.process_time()
    events, tally = read(data)
    seconds = time.process_time() - begin
    assert (events, tally.n_unknown) == ([], 100_000)
    assert 100_000 / seconds > 60_000
