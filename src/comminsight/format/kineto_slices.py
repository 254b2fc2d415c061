"""A profiler trace decoded as it comes, slice by slice: neither its text nor its events ever stand
whole in memory.

The text is cut behind the last event that a slice holds. Whether a place really lies between two
events is told by the decoding itself: what reads as a list of events, begun at the beginning of
one, ends at the end of one, since brackets and quotes of JSON only close what is open. A cut that
does not read is moved on; the rest is read as a document, whose error is that of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from comminsight.format.document import UNREADABLE, read_document
from comminsight.format.kineto_events import Event

SLICE_BYTES = 1 << 18  # larger ones are slower: their events no longer fit the cache
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_MAX_LISTS, _MAX_CUTS = 8, 64
_MARK = b"\xef\xbb\xbf"  # of UTF-8
_SPACE = b" \t\r\n"
_EVENTS = msgspec.json.Decoder(list[Event])


class Group(msgspec.Struct):
    """A process group as the header lists it; every value may be of any kind."""

    pg_name: Any = ""
    pg_desc: Any = ""
    pg_size: Any = 0
    ranks: Any = None


class Distributed(msgspec.Struct):
    """What the header states of the job."""

    backend: Any = ""
    rank: Any = None
    world_size: Any = None
    pg_config: list[Group] = []


class Header(msgspec.Struct):
    """The document without its events."""

    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    trace_name: Any = msgspec.field(default=None, name="traceName")


class _Document(Header, kw_only=True):
    events: list[Event] = msgspec.field(name="traceEvents")


class SlicedDocument:
    """The document in ``pieces`` of text: iterate over its lists of events, once; ``header`` is
    whole when they are through. Raises InputError naming the file for what is no such document."""

    def __init__(
        self, pieces: Iterable[bytes], *, path: str, next_step: str, slice_bytes: int = SLICE_BYTES
    ) -> None:
        self.header = Header()
        self._pieces = pieces
        self._path, self._next_step = path, next_step
        self._slice_bytes = slice_bytes
        self._text = bytearray()  # from "[" on once the list of events has begun
        self._is_in_list = False

    def __iter__(self) -> Iterator[list[Event]]:
        enough = self._slice_bytes
        for piece in self._pieces:
            self._text += piece
            if len(self._text) < enough:
                continue
            if not self._is_in_list:
                self._enter()
            events = self._cut() if self._is_in_list else None
            enough = self._slice_bytes if events is not None else 2 * len(self._text)
            if events:
                yield events
        yield self._rest()

    def _enter(self) -> None:
        """Reads what precedes the list of events, once it is whole."""
        if self._text.startswith(_MARK):
            del self._text[: len(_MARK)]
        ends = [found.end() for found in islice(_LIST.finditer(self._text), _MAX_LISTS)]
        for end in ends:
            try:
                self.header = msgspec.json.decode(self._text[:end] + b"]}", type=Header)
            except UNREADABLE:
                continue
            del self._text[: end - 1]
            self._is_in_list = True
            return

    def _cut(self) -> list[Event] | None:
        """The events before the last place that may lie between two; None where none does."""
        at = _last_comma(self._text)
        if at < 0:
            return None
        self._text[at : at + 1] = b"]"
        try:
            events = _EVENTS.decode(bytes(memoryview(self._text)[: at + 1]))
        except UNREADABLE:
            self._text[at : at + 1] = b","
            return None
        del self._text[:at]
        self._text[:1] = b"["
        return events

    def _rest(self) -> list[Event]:
        """The events of the end, and what the document states behind them."""
        if self._text.startswith(_MARK):
            del self._text[: len(_MARK)]
        if self._is_in_list:
            self._text[:0] = b'{"traceEvents":'
        last = read_document(self._text, _Document, path=self._path, next_step=self._next_step)
        self._text = bytearray()
        for name in Header.__struct_fields__:
            if (value := getattr(last, name)) is not None:
                setattr(self.header, name, value)
        return last.events


def _last_comma(text: bytearray) -> int:
    """Where the last comma between two objects stands, told by its neighbours; -1 nowhere."""
    end = len(text)
    for _ in range(_MAX_CUTS):
        at = text.rfind(b"},", 0, end)
        if at < 0:
            break
        if text[at + 2 : at + 66].lstrip(_SPACE).startswith(b"{"):
            return at + 1
        end = at
    return -1
