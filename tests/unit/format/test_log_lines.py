"""Streams of any kind become lines within bounds, and what would break them is refused by name."""

from __future__ import annotations

import gzip
import io

import pytest
import zstandard
from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.format import expanding, log_lines
from comminsight.format.expanding import FREE_EXPANSION_BYTES, GZIP, READ_BYTES, ZSTD
from comminsight.format.log_lines import MAX_LINE_BYTES, blocks
from comminsight.format.log_reader import LogReader
from comminsight.model.log_event import LogCode, LogEvent, LogTally
from tests.builders.logs import samples

TEXT = "\n".join(sample.line for seed in range(3) for sample in samples(seed)).encode() + b"\n"
KILLED = "srun: error: amber-01: task 3: Killed"


def read(data: bytes) -> tuple[list[LogEvent], LogTally]:
    reader = LogReader(io.BytesIO(data), file="x.log")
    return list(reader), reader.tally


class Slow(io.BytesIO):
    """Hands out a few bytes at a time, as a pipe does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 61))


PLAIN_EVENTS, PLAIN_TALLY = read(TEXT)


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(TEXT),
        gzip.compress(TEXT[:700]) + gzip.compress(TEXT[700:]),
        gzip.compress(TEXT) + b"\0" * 512,
        zstandard.compress(TEXT),
        zstandard.compress(TEXT[:700]) + zstandard.compress(TEXT[700:]),
        b"\xef\xbb\xbf" + TEXT,
        TEXT.decode().encode("utf-16"),
        b"\xfe\xff" + TEXT.decode().encode("utf-16-be"),
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.rstrip(b"\n"),
    ],
    ids=["gz", "two gz", "padded gz", "zst", "two zst", "BOM", "UTF-16", "BE", "CRLF", "no end"],
)
def test_the_same_text_in_any_form_gives_the_same_events(data: bytes) -> None:
    events, tally = read(data)
    assert [replace(event, is_cut=False) for event in events] == PLAIN_EVENTS
    assert (tally.n_read, tally.n_emitted) == (PLAIN_TALLY.n_read, PLAIN_TALLY.n_emitted)


def test_events_do_not_depend_on_how_the_stream_is_handed_out() -> None:
    assert list(LogReader(Slow(TEXT), file="x.log")) == PLAIN_EVENTS


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused_with_its_name_and_a_next_step(pack: object) -> None:
    assert callable(pack)
    bomb = pack(b"0" * (FREE_EXPANSION_BYTES + READ_BYTES))
    with pytest.raises(InputError, match=r"x\.log: expands to more than 300 times") as caught:
        read(bomb)
    assert caught.value.next_step


@pytest.mark.parametrize("magic", [GZIP, ZSTD])
def test_what_only_begins_like_a_compressed_file_is_refused(magic: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.log: is no whole"):
        read(magic + b"\xff" * 100)


def test_zstd_without_its_package_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanding, "zstandard", None)
    with pytest.raises(InputError, match="zstandard") as caught:
        read(zstandard.compress(TEXT))
    assert "zstd -d" in caught.value.next_step


def test_a_torn_file_gives_what_is_there() -> None:
    packed = gzip.compress(TEXT)
    events, _tally = read(packed[: len(packed) // 2])
    assert events[:-1] == PLAIN_EVENTS[: len(events) - 1]
    assert len(events) > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_last_line_without_its_end_says_nothing_wrong(seed: int) -> None:
    for sample in samples(seed):
        whole = [event.values for event in read(f"{sample.line}\n".encode())[0]]
        for size in range(len(sample.line)):
            for event in read(sample.line[:size].encode())[0]:
                assert event.is_cut
                if event.code is sample.code:
                    known = whole[0]
                    assert all(
                        known.get(name) == value or is_part(value, known.get(name))
                        for name, value in event.values.items()
                    ), sample.line[:size]


def is_part(value: object, whole: object) -> bool:
    """A text may be shorter than the whole one; a number may not."""
    return isinstance(value, str) and isinstance(whole, str) and whole.startswith(value)


def test_too_large_a_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MAX_LOG_BYTES", 1000)
    with pytest.raises(InputError, match="larger than"):
        read(TEXT)


@pytest.mark.parametrize("size", [MAX_LINE_BYTES + 1, READ_BYTES, 3 * READ_BYTES + 5])
def test_a_line_beyond_the_budget_is_read_in_its_head_alone(size: int) -> None:
    long = f"{KILLED} " + "y" * size
    events, tally = read(f"one\n{long}\n{'z ' * size}\n{KILLED}\n".encode())
    assert [(event.line, event.is_cut) for event in events] == [(2, True), (4, False)]
    assert (tally.n_read, tally.n_emitted, tally.n_truncated, tally.n_cut) == (4, 2, 1, 2)
    assert all(len(line) <= MAX_LINE_BYTES for block in blocks(io.BytesIO(long.encode()))
               for line in block.lines)  # fmt: skip


@pytest.mark.parametrize("n_digits", range(1, 6))
def test_a_number_that_the_budget_cuts_is_not_read(n_digits: int) -> None:
    text = "srun: error: amber-01: task 3: Exited with exit code 13456"
    padding = "x" * (MAX_LINE_BYTES - len(text) + 4 - n_digits)
    events, tally = read(f"{padding} {text} and more".encode())
    assert [(event.code, event.values) for event in events] == [
        (LogCode.SLURM_TASK_EXIT, {"tasks": "3"})
    ]
    assert (tally.n_cut, tally.n_truncated) == (1, 0)


def test_bytes_of_another_encoding_are_replaced_and_counted() -> None:
    events, tally = read(f"{KILLED}\nfür\n".encode("latin-1") + f"für {KILLED}".encode("latin-1"))
    assert [event.line for event in events] == [1, 3]
    assert tally.n_replaced == 2


def test_holes_of_a_log_that_was_emptied_are_passed_over_and_others_refused() -> None:
    events, tally = read(b"\0" * 100 + KILLED.encode() + b"\nsrun: error: \0 task\n")
    assert [event.code for event in events] == [LogCode.SLURM_TASK_KILLED]
    assert (tally.n_read, tally.n_emitted, tally.n_refused) == (2, 1, 1)


def test_nothing_is_nothing() -> None:
    assert read(b"") == ([], LogTally())
    assert read(b"\n\n")[1].n_unknown == 2
