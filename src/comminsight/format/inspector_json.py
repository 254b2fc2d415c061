"""The JSON lines of NCCL's Inspector plugin (v4.0 to v4.4, plain or compressed) as columns.

Up to v4.2 every line repeats ``header`` and ``metadata``; from v4.3 on a ``dump_stats`` line has
them for the records that follow it, as many as it counts. One file may hold several processes.
Lines that are no record of an op are counted by name and never guessed at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec
import numpy as np

from comminsight.errors import InputError
from comminsight.format.expanding import expanded
from comminsight.format.inspector_bytes import MARGIN, Bytes, lines_of
from comminsight.format.inspector_columns import BlockColumns, block_columns
from comminsight.format.inspector_rows import (
    BAD_LINE,
    NO_HEADER,
    NOT_FINITE,
    ROW_DTYPE,
    Context,
    context_of,
    row_of,
)

MAX_INSPECTOR_BYTES = 1 << 36  # expanded
BLOCK_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 20
MAX_CONTEXTS = 1 << 16
MAX_RECORDS = 1 << 26
NEXT_STEP = "give the files of NCCL_INSPECTOR_DUMP_DIR, one for each process, as they were written"
PROXY = "inspector.proxy_record"
OTHER_LINE = "inspector.other_line"
LONG_LINE = "inspector.long_line"
TORN_LINE = "inspector.torn_line"
DROPPED = "inspector.dropped"  # by the plugin, as it says itself
_RECORDS = ("coll_perf", "p2p_perf")
_FORMS = (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"', b'"proxy_trace"')
_PROXY_LINE = b'{"proxy_trace":{'
_UNBOUNDED = 1 << 62
_HEAD_KEYS = {"header", "metadata", ""}


@dataclass(slots=True)
class InspectorRecords:
    """``rows`` of ``ROW_DTYPE`` in the order of the file, with the contexts that they point to.
    ``counts`` are lines and fields that were left out, by name; ``n_lines`` all that were read."""

    rows: np.ndarray
    contexts: tuple[Context, ...]
    counts: Counter[str]
    n_lines: int


def is_inspector(head: bytes) -> bool:
    """Whether a file that begins so is one of the plugin."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0][:4096]
    is_own = (
        b'"inspector_output_format_version"' in line or b'"coll_sn"' in line or b'"p2p_sn"' in line
    )
    return line.startswith(b"{") and is_own and any(form in line for form in _FORMS)


def read_inspector(
    stream: BinaryIO, *, path: str = "", block_bytes: int = BLOCK_BYTES
) -> InspectorRecords:
    """The records in ``stream``; in memory stand a block of text and 80 bytes for each record.

    Raises InputError naming the file where no line is one of the plugin, where it does not expand,
    or is beyond all bounds.
    """
    reading = _Reading(path)
    pieces = expanded(stream, max_bytes=MAX_INSPECTOR_BYTES, path=path, next_step=NEXT_STEP)
    for text, n_bytes in _blocks(pieces, block_bytes, reading.counts):
        reading.add(text, n_bytes)
    if not reading.contexts:
        raise InputError(
            f"none of its {reading.n_lines:,} lines has a header of NCCL's Inspector", path=path,
            next_step=NEXT_STEP,
        )  # fmt: skip
    words = [part.view(np.int64) for part in reading.parts]  # a structured array moves by field
    rows = np.concatenate(words) if words else np.empty(0, np.int64)
    return InspectorRecords(
        rows.view(ROW_DTYPE), tuple(reading.contexts), +reading.counts, reading.n_lines
    )


def _blocks(
    pieces: Iterable[bytes], block_bytes: int, counts: Counter[str]
) -> Iterator[tuple[bytes, int]]:
    """Texts that end with ``MARGIN``, and how much of each are whole lines. A last line that is
    torn is dropped and counted."""
    parts: list[bytes] = []
    n_held = 0
    for piece in pieces:
        parts.append(piece)
        n_held += len(piece)
        if n_held < block_bytes:
            continue
        text = b"".join((*parts, MARGIN))
        n_whole = text.rfind(b"\n", 0, n_held) + 1
        if n_whole:
            yield text, n_whole
        rest = text[n_whole:n_held]
        if len(rest) > MAX_LINE_BYTES:
            counts[LONG_LINE] += 1
            rest = b""
        parts, n_held = [rest], len(rest)
    text = b"".join((*parts, MARGIN))
    rest = text[text.rfind(b"\n", 0, n_held) + 1 : n_held].rstrip()
    is_torn = bool(rest) and not rest.endswith(b"}")
    counts[TORN_LINE] += is_torn
    yield text, text.rfind(b"\n", 0, n_held) + 1 if is_torn else n_held + 1


@dataclass(slots=True)
class _Reading:
    path: str
    parts: list[np.ndarray] = field(default_factory=list)
    contexts: dict[Context, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    n_lines: int = 0
    n_records: int = 0
    _heads: dict[bytes, int] = field(default_factory=dict)
    _current: int = -1
    _dump_us: int = 0
    _left: int = 0  # records that the last dump_stats still has to come
    _exact: Any = field(default_factory=lambda: msgspec.json.Decoder(dict[str, Any]))

    def add(self, text: bytes, n_bytes: int) -> None:
        """Reads the lines in the first ``n_bytes`` of ``text``, which goes on behind them."""
        begins, ends = lines_of(text, n_bytes)
        if not len(begins):
            return
        self.n_lines += len(begins)
        found = block_columns(text, begins, ends)
        if found is None:
            self._keep(self._streamed(text, begins, ends))
            return
        rows, lines = self._with_contexts(found)
        if len(lines) == len(begins):
            self._keep(rows)
            return
        is_left = np.ones(len(begins), bool)
        is_left[lines] = False
        left = np.flatnonzero(is_left).tolist()
        told = ((n, self._row(text[begins[n] : ends[n]])) for n in left)
        exact = [(n, row) for n, row in told if row is not None]
        every = np.concatenate((rows, np.array([row for _, row in exact], ROW_DTYPE)))
        order = np.argsort(np.concatenate((lines, [n for n, _ in exact])), kind="stable")
        self._keep(every[order])

    def _keep(self, rows: np.ndarray) -> None:
        self.n_records += len(rows)
        if self.n_records > MAX_RECORDS:
            raise InputError(
                f"more than {MAX_RECORDS:,} records", path=self.path, next_step=NEXT_STEP
            )
        self.parts.append(rows)

    def _with_contexts(self, found: BlockColumns) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose heads say where they belong, with that, and the lines that they are."""
        rows, lines, is_word = found.rows, found.lines, found.is_word
        known = zip(found.heads, found.head_dumps_us, strict=True)
        numbers = np.array([self._of_head(*one) for one in known], np.int32)
        rows["context"] = numbers[found.head_of]
        if not (numbers >= 0).all():
            is_known = rows["context"] >= 0
            rows, lines, is_word = rows[is_known], lines[is_known], is_word[is_known]
        self.counts[NOT_FINITE] += int(np.count_nonzero(is_word))
        return rows, lines

    def _of_head(self, head: bytes, dump_us: int) -> int:
        """The context of the beginning of a line up to its payload; -1 for what is to be read as a
        whole line, one whose time is not ``dump_us`` too."""
        known = self._heads.get(head)
        if known is None:
            known = self._read_head(head, dump_us)
            if len(self._heads) < MAX_CONTEXTS:
                self._heads[head] = known
        return known

    def _read_head(self, head: bytes, dump_us: int) -> int:
        try:
            document = self._exact.decode(head + b'"":0}')
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return -1
        if {*document} != _HEAD_KEYS or _dump_us(document) != dump_us:
            return -1
        counted = self.counts[NO_HEADER]
        context = self._context(document)
        self.counts[NO_HEADER] = counted  # the line is counted where it is read
        return context

    def _context(self, document: dict[str, Any]) -> int:
        context = context_of(document.get("header"), document.get("metadata"))
        if not context.id or context.rank < 0:
            self.counts[NO_HEADER] += 1
            return -1
        if context not in self.contexts and len(self.contexts) >= MAX_CONTEXTS:
            raise InputError(
                f"more than {MAX_CONTEXTS:,} communicators", path=self.path, next_step=NEXT_STEP
            )
        return self.contexts.setdefault(context, len(self.contexts))

    def _streamed(self, text: bytes, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The rows of lines in any mix; those of a proxy, mostly many, are counted together."""
        block = Bytes(text)
        is_proxy = block.begins_with(begins, _PROXY_LINE) & block.begins_with(ends - 2, b"}}")
        counts = np.cumsum(is_proxy)
        kept = np.flatnonzero(~is_proxy)
        skipped = np.diff(counts[kept], prepend=0).tolist()
        rows = []
        for begin, end, n in zip(begins[kept].tolist(), ends[kept].tolist(), skipped, strict=True):
            self._left -= n
            rows.append(self._row(text[begin:end]))
        self._left -= int(counts[-1]) - sum(skipped)
        self.counts[PROXY] += int(counts[-1])
        return np.array([row for row in rows if row is not None], ROW_DTYPE)

    def _row(self, line: bytes) -> tuple[Any, ...] | None:
        if not line.strip():
            self.n_lines -= 1
            return None
        try:
            document = self._exact.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.counts[BAD_LINE] += 1
            return None
        if not any(kind in document for kind in _RECORDS):
            self._see_other(document)
            return None
        context, dump_us = self._current, self._dump_us
        if "header" in document:
            context, dump_us = self._context(document), _dump_us(document)
        elif self._left <= 0 or context < 0:
            self.counts[NO_HEADER] += 1
            return None
        else:
            self._left -= 1
        if context < 0:
            return None
        row = row_of(document, context, dump_us, self.counts)
        self.counts[BAD_LINE] += row is None
        return row

    def _see_other(self, document: dict[str, Any]) -> None:
        """A line that begins a dump, tells of a proxy, or of something else."""
        if isinstance(stats := document.get("dump_stats"), dict):
            self._current, self._dump_us = self._context(document), _dump_us(document)
            self._left = sum(
                _count(stats, key) for key in ("coll_records", "p2p_records", "proxy_records")
            )
            self.counts[DROPPED] += sum(
                _count(stats, f"{kind}_dropped_since_last_dump") for kind in ("coll", "p2p")
            )
        elif "proxy_trace" in document:
            self._left -= 1
            self.counts[PROXY] += 1
        else:
            self.counts[OTHER_LINE] += 1


def _dump_us(document: dict[str, Any]) -> int:
    metadata = document.get("metadata")
    return _count(metadata, "dump_timestamp_us") if isinstance(metadata, dict) else 0


def _count(fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) and 0 <= value < _UNBOUNDED else 0
