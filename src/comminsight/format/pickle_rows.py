"""Rows of a pickled table in one look: dicts whose values are numbers, and parts seen before.

A dump holds thousands of dicts that differ in a few numbers. One regular expression finds the end
of such a dict and where its numbers are; what stands between them is read once, by the machine
that reads everything (``safe_pickle``), and shared. A row with the bytes of an earlier one but for
its numbers is taken apart as that one was. What the expression does not know is left to the
machine, so that nothing is read here that would not be read there.

Every repetition is possessive: a byte is looked at a fixed number of times, whatever stands there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

MAX_ROW_BYTES = 1 << 12
MAX_PAIRS = 1 << 14
MAX_LAYOUTS = 1 << 12
MAX_SEEN = 1 << 16

_KEY = rb"(?>h.|j.{4})"
_NUMBER = rb"(?>K.|M..|\x8a\x08.{8})"
_ATOM = rb"[hK].|[N\x88\x89]|M..|[jJ].{4}|\x8a\x08.{8}|G.{8}"
_LIST = rb"\]\((?:" + _ATOM + rb")*+e"
_DICT = rb"\}\((?:" + _ATOM + rb")*+u"
_OTHER = (
    rb"(?>h.(?:h.\x86)?|[N\x88\x89]|[jJ].{4}|G.{8}|\]\((?:"
    + rb"|".join((_ATOM, _LIST, _DICT)) + rb")*+e)"
)  # fmt: skip
_RUNS = rb"((?:" + _KEY + _NUMBER + rb")*+)((?:" + _KEY + _OTHER + rb")*+)"
_ROW = re.compile(rb"\}\(" + _RUNS * 10 + rb"u", re.DOTALL)
_PAIR = re.compile(_KEY + _OTHER, re.DOTALL)
_NUMBERED = re.compile(rb"(h.|j.{4})(?:(K)(.)|(M)(..)|(\x8a)\x08(.{8}))", re.DOTALL)
_TOKEN = re.compile(rb"[hK].|M..|[jJ].{4}|\x8a\x08.{8}|G.{8}|[N\x88\x89\]()}eu\x86]", re.DOTALL)
_GET = ord("h")
_WIDTHS = {b"K": "B", b"M": "H", b"\x8a": "q"}

Row = dict[Any, Any]
Texts = tuple[tuple[int, str], ...]


class _Layout:
    """How the rows of one kind are taken apart: constants and numbers, by turns.

    ``texts`` are its keys by their numbers in the memo. ``pairs`` are the pieces whose values come
    from the memo: what they mean in the pickle of ``token`` stands in ``template``.
    """

    __slots__ = ("constants", "form", "keys", "next", "pairs", "template", "texts", "token")

    def __init__(
        self, form: str, constants: tuple[bytes, ...], keys: tuple[str, ...],
        texts: Texts, pairs: list[bytes],
    ) -> None:  # fmt: skip
        self.form = struct.Struct(form)
        self.constants = constants
        self.keys = keys
        self.texts = texts
        self.pairs = pairs
        self.template: Row = {}
        self.token: object = None
        self.next = self


class Layouts:
    """What is known of the rows of several pickles that one program wrote."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Layout] = {}
        self._seen: set[int] = set()
        self._texts: dict[Texts, Texts] = {}

    def is_worth(self, key: tuple[object, ...]) -> bool:
        """Whether such a row was there before: one alone is not worth a layout."""
        number = hash(key)
        if number in self._seen:
            return True
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen.add(number)
        return False

    def same(self, texts: Texts) -> Texts:
        """The one object that stands for these texts, as long as a layout has it."""
        return self._texts.setdefault(texts, texts)

    def get(self, key: tuple[object, ...]) -> _Layout | None:
        """The layout of rows with these constants."""
        return self._known.get(key)

    def add(self, key: tuple[object, ...], layout: _Layout) -> None:
        """Keeps it; all others are dropped when they are too many."""
        if len(self._known) >= MAX_LAYOUTS:
            self._known.clear()
            self._texts.clear()
        self._known[key] = layout


class Rows:
    """The rows of one pickle. ``read`` makes the dict that a piece of pickle is.

    ``n_values`` counts what was made, for whoever keeps a budget. ``forget`` is to be called when a
    number of the memo gets another value.
    """

    def __init__(
        self, data: bytes, memo: dict[int, Any], read: Callable[[bytes], Row], layouts: Layouts
    ) -> None:
        self.data = data
        self.n_values = 0
        self._memo = memo
        self._read = read
        self._layouts = layouts
        self._pairs: dict[bytes, Row] = {}
        self._checked: dict[int, tuple[Texts, bool]] = {}  # by identity
        self._token = object()
        self._last: _Layout | None = None

    def forget(self) -> None:
        """Nothing that was read before says any more what the same bytes mean."""
        self._pairs.clear()
        self._checked.clear()
        self._token = object()
        self._last = None

    def row(self, at: int) -> tuple[Row, int] | None:
        """The dict that begins at ``at``, and where it ends; None for one that is no row."""
        last = self._last
        if last is not None:
            found = self._like(last.next, at)
            if found is not None:
                return found
        match = _ROW.match(self.data, at)
        if match is None:
            return None
        parts = match.groups()
        key = (*parts[1::2], *map(len, parts[::2]))
        layout = self._layouts.get(key)
        found = None if layout is None else self._like(layout, at)
        try:
            return found or self._new(match, key)
        except KeyError:
            return None

    def _like(self, layout: _Layout, at: int) -> tuple[Row, int] | None:
        """The row at ``at`` where it is one of this layout."""
        form = layout.form
        if at + form.size > len(self.data):
            return None
        fields = form.unpack_from(self.data, at)
        if fields[::2] != layout.constants:
            return None
        if layout.token is not self._token and not self._is_bound(layout):
            return None
        row = layout.template.copy()
        row.update(zip(layout.keys, fields[1::2], strict=True))
        self.n_values += len(row)
        if self._last is not None:
            self._last.next = layout
        self._last = layout
        return row, at + form.size

    def _is_bound(self, layout: _Layout) -> bool:
        """Whether its keys are the same here; its template is then what it means here."""
        if not self._has_texts(layout.texts):
            return False
        bound = layout.template.copy()
        for pair in layout.pairs:
            bound.update(self._pair(pair))
        layout.template = bound
        layout.token = self._token
        return True

    def _has_texts(self, texts: Texts) -> bool:
        """Whether the memo holds these texts at these numbers; asked once per pickle."""
        checked = self._checked.get(id(texts))
        if checked is None:
            memo = self._memo
            checked = texts, all(memo.get(index) == text for index, text in texts)
            self._checked[id(texts)] = checked
        return checked[1]

    def _new(self, match: re.Match[bytes], key: tuple[object, ...]) -> tuple[Row, int]:
        """A row of a new kind, read in parts; KeyError for a key that is no text."""
        row: Row = {}
        n_pairs = 0
        parts = iter(match.groups())
        for numbers, others in zip(parts, parts, strict=True):
            for one in _NUMBERED.finditer(numbers):
                row[self._text(one[1])] = _number(one)
                n_pairs += 1
            for pair in _PAIR.findall(others):
                row.update(self._pair(pair))
                n_pairs += 1
        self.n_values += len(row)
        is_plain = len(row) == n_pairs and match.end() - match.start() <= MAX_ROW_BYTES
        if is_plain and self._layouts.is_worth(key):
            self._last = self._layout(match, row)
            self._layouts.add(key, self._last)
        else:
            self._last = None
        return row, match.end()

    def _text(self, reference: bytes) -> str:
        text = self._memo[_index(reference)]
        if type(text) is not str:
            raise KeyError
        return text

    def _pair(self, pair: bytes) -> Row:
        """The dict of one key and its value."""
        known = self._pairs.get(pair)
        if known is None:
            if len(pair) > MAX_ROW_BYTES:
                raise KeyError
            if len(self._pairs) >= MAX_PAIRS:
                self._pairs.clear()
            self.n_values += len(pair)
            if len(pair) == 4 and pair[0] == pair[2] == _GET:
                known = {self._text(pair): self._memo[pair[3]]}
            else:
                known = self._read(b"}(" + pair + b"u.")
                ((key, _),) = known.items()
                if type(key) is not str:
                    raise KeyError
            self._pairs[pair] = known
        return known

    def _layout(self, match: re.Match[bytes], row: Row) -> _Layout:
        form, constants, keys, begin = "<", [], [], match.start()
        for group in range(1, _ROW.groups, 2):
            for one in _NUMBERED.finditer(match[group]):
                place = one.lastindex or 0
                at = match.start(group) + one.start(place)
                form += f"{at - begin}s{_WIDTHS[one[place - 1]]}"
                constants.append(self.data[begin:at])
                begin = at + len(one[place])
                keys.append(one[1])
        form += f"{match.end() - begin}s"
        constants.append(self.data[begin : match.end()])
        pairs = [pair for run in match.groups()[1::2] for pair in _PAIR.findall(run)]
        referring = [pair for pair in pairs if _refers(pair)]
        texts = self._layouts.same(tuple((_index(key), self._text(key)) for key in (*keys, *pairs)))
        layout = _Layout(form, tuple(constants), tuple(map(self._text, keys)), texts, referring)
        layout.template, layout.token = row.copy(), self._token
        return layout


def _index(reference: bytes) -> int:
    """The number in the memo that a reference begins with."""
    n_bytes = 1 if reference[0] == _GET else 4
    return int.from_bytes(reference[1 : 1 + n_bytes], "little")


def _refers(pair: bytes) -> bool:
    """Whether the value of a pair comes from the memo, in part at least."""
    _, *rest = (token[0][:1] for token in _TOKEN.finditer(pair))
    return b"h" in rest or b"j" in rest


def _number(one: re.Match[bytes]) -> int:
    """The number that stands behind its key."""
    place = one.lastindex or 0
    return int.from_bytes(one[place], "little", signed=place == 7)
