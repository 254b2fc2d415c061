"""Rows of a pickled table in one look: dicts whose values are numbers, and parts seen before.

A dump holds thousands of dicts that differ in a few numbers. One regular expression finds the end
of such a dict and where its numbers are; what stands between them is read once, by the machine
that reads everything (``safe_pickle``), and shared. A row with the bytes of an earlier one but for
its numbers is taken apart as that one was, and where the memo holds the texts that it held then, it
means what that one meant. What the expression does not know is left to the machine, so that nothing
is read here that would not be read there.

Every repetition is possessive: a byte is looked at a fixed number of times, whatever stands there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from comminsight.format.pickle_layouts import Layout, Layouts, Meaning, RefersTo, Row, Texts

MAX_ROW_BYTES = 1 << 12
MAX_PAIRS = 1 << 14
MAX_NEXT = 6

_KEY = rb"(?>h.|j.{4})"
_NUMBER = rb"(?>K.|M..|J.{4}|\x8a\x08.{8})"
_ATOM = rb"[hK].|[N\x88\x89]|M..|[jJ].{4}|\x8a\x08.{8}|G.{8}"
_LIST = rb"\]\((?:" + _ATOM + rb")*+e"
_DICT = rb"\}\((?:" + _ATOM + rb")*+u"
_OTHER = (
    rb"(?>h.(?:h.\x86)?|[N\x88\x89]|j.{4}|G.{8}|\]\((?:"
    + rb"|".join((_ATOM, _LIST, _DICT)) + rb")*+e)"
)  # fmt: skip
_RUNS = rb"((?:" + _KEY + _NUMBER + rb")*+)((?:" + _KEY + _OTHER + rb")*+)"
_ROW = re.compile(rb"\}\(" + _RUNS * 10 + rb"u", re.DOTALL)
_PAIR = re.compile(_KEY + _OTHER, re.DOTALL)
_NUMBERED = re.compile(rb"(h.|j.{4})(?:(K)(.)|(M)(..)|(J)(.{4})|(\x8a)\x08(.{8}))", re.DOTALL)
_TOKEN = re.compile(rb"[hK].|M..|[jJ].{4}|\x8a\x08.{8}|G.{8}|[N\x88\x89\]()}eu\x86]", re.DOTALL)
_SIGNED = {7, 9}  # the numbers of J and of 8a in _NUMBERED
_GET = ord("h")
_WIDTHS = {b"K": "B", b"M": "H", b"J": "i", b"\x8a": "q"}


class Rows:
    """The rows of one pickle. ``read`` makes the dict that a piece of pickle is.

    ``n_values`` counts what was made, for whoever keeps a budget. ``forget`` is to be called when a
    number of the memo gets another value, and ``has_texts_alone`` to be set when one gets no text.
    """

    def __init__(
        self, data: bytes, memo: dict[int, Any], read: Callable[[bytes], Row], layouts: Layouts
    ) -> None:
        self.data = data
        self.n_values = 0
        self.has_texts_alone = True
        self._memo = memo
        self._read = read
        self._layouts = layouts
        self._pairs: dict[bytes, Row] = {}
        self._checked: dict[int, tuple[Texts, bool]] = {}  # by identity
        self._token = object()
        self._last: Layout | None = None

    def forget(self) -> None:
        """Nothing that was read before says any more what the same bytes mean."""
        self._pairs.clear()
        self._checked.clear()
        self._token = object()
        self._last = None

    def row(self, at: int) -> tuple[Any, int] | None:
        """The dict that begins at ``at``, or what is made of it, and where it ends; None for one
        that is no row."""
        if self._last is not None:
            for follower in self._last.followers:
                found = self._like(follower, at)
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

    def _like(self, layout: Layout, at: int) -> tuple[Any, int] | None:
        """The row at ``at`` where it is one of this layout."""
        form = layout.form
        if at + form.size > len(self.data):
            return None
        fields = form.unpack_from(self.data, at)
        if fields[::2] != layout.constants:
            return None
        if layout.token is not self._token and not self._is_bound(layout):
            return None
        last, self._last = self._last, layout
        if last is not None and (not last.followers or last.followers[0] is not layout):
            _follow(last.followers, layout)
        template, make = layout.meaning
        self.n_values += len(template)
        row = make(fields[1::2]) if make is not None else None
        if row is None:
            row = template.copy()
            row.update(zip(layout.keys, fields[1::2], strict=True))
        return row, at + form.size

    def _is_bound(self, layout: Layout) -> bool:
        """Whether its keys are the same here; its meaning is then that which it has here."""
        told = self._told(layout.refers_to)
        meaning = None if told is None else self._layouts.meanings.get((layout, told))
        if meaning is None:
            if not self._has_texts(layout.texts):
                return False
            row = layout.meaning.template.copy()
            for pair in layout.pairs:
                row.update(self._pair(pair))
            meaning = self._meaning(row, layout.keys, told)
            if told is not None:
                self._layouts.meanings.keep((layout, told), meaning)
        layout.meaning, layout.token = meaning, self._token
        return True

    def _told(self, refers_to: RefersTo) -> tuple[str, ...] | None:
        """What the memo holds at some numbers; None where that is not all text."""
        try:
            told = refers_to(self._memo)
        except KeyError:
            return None
        return told if self.has_texts_alone or set(map(type, told)) == {str} else None

    def _meaning(self, row: Row, keys: tuple[str, ...], told: tuple[str, ...] | None) -> Meaning:
        """What is not all text may still change: it stays a dict."""
        return Meaning(row, None) if told is None else self._layouts.meaning(row, keys)

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
        is_plain = 0 < len(row) == n_pairs and match.end() - match.start() <= MAX_ROW_BYTES
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
            is_short = len(pair) == 4 and pair[0] == pair[2] == _GET
            known = self._short(pair) if is_short else self._long(pair)
            self._pairs[pair] = known
        return known

    def _short(self, pair: bytes) -> Row:
        """Of a key and a value that are both in the memo."""
        self.n_values += len(pair)
        return {self._text(pair): self._memo[pair[3]]}

    def _long(self, pair: bytes) -> Row:
        """Of any other: the same as in an earlier pickle where it refers to the same texts."""
        refers_to = self._layouts.references.get(pair)
        if refers_to is None:
            refers_to = _taking(_gets(pair))
            self._layouts.references.keep(pair, refers_to)
        told = self._told(refers_to)
        known = None if told is None else self._layouts.pairs.get((pair, told))
        if known is None:
            self.n_values += len(pair)
            known = self._read(b"}(" + pair + b"u.")
            ((key, _),) = known.items()
            if type(key) is not str:
                raise KeyError
            if told is not None:
                self._layouts.pairs.keep((pair, told), known)
        return known

    def _layout(self, match: re.Match[bytes], row: Row) -> Layout:
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
        names = tuple(map(self._text, keys))
        refers_to = _taking(_references(texts, referring))
        meaning = self._meaning(row.copy(), names, self._told(refers_to))
        layout = Layout(form, tuple(constants), names, texts, referring, refers_to, meaning)
        layout.token = self._token
        return layout


def _follow(followers: list[Layout], layout: Layout) -> None:
    """Puts the layout first."""
    if layout in followers:
        followers.remove(layout)
    followers.insert(0, layout)
    del followers[MAX_NEXT:]


def _index(reference: bytes) -> int:
    """The number in the memo that a reference begins with."""
    n_bytes = 1 if reference[0] == _GET else 4
    return int.from_bytes(reference[1 : 1 + n_bytes], "little")


def _refers(pair: bytes) -> bool:
    """Whether the value of a pair comes from the memo, in part at least."""
    return len(_gets(pair)) > 1


def _gets(pair: bytes) -> list[int]:
    """The numbers in the memo that a pair refers to, that of its key first."""
    return [_index(token[0]) for token in _TOKEN.finditer(pair) if token[0][:1] in {b"h", b"j"}]


def _references(texts: Texts, pairs: list[bytes]) -> list[int]:
    """All numbers in the memo that a row refers to."""
    found = dict.fromkeys(index for index, _ in texts)
    found |= dict.fromkeys(index for pair in pairs for index in _gets(pair))
    return [*found]


def _taking(indices: list[int]) -> RefersTo:
    """Takes from a memo what stands at these numbers, twice where there is but one."""
    return itemgetter(*indices, *indices[:1])


def _number(one: re.Match[bytes]) -> int:
    """The number that stands behind its key."""
    place = one.lastindex or 0
    return int.from_bytes(one[place], "little", signed=place in _SIGNED)
