"""What is known of the rows of several pickles that one program wrote (see ``pickle_rows``).

Nothing here depends on one pickle: what a row meant is kept with all texts that it referred to, and
holds where these are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

MAX_LAYOUTS = 1 << 12
MAX_SEEN = 1 << 16
MAX_MEANINGS = 1 << 13

Row = dict[Any, Any]
Texts = tuple[tuple[int, str], ...]
Make = Callable[[tuple[int, ...]], Any]
RefersTo = Callable[[dict[int, Any]], tuple[Any, ...]]
Prepare = Callable[[Row, tuple[str, ...]], Make | None]

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """A table that forgets everything when it is full."""

    def __init__(self, size: int) -> None:
        self._table: dict[Key, Value] = {}
        self._size = size
        self.get = self._table.get

    def keep(self, key: Key, value: Value) -> None:
        """Keeps it; all others are dropped when they are too many."""
        if len(self._table) >= self._size:
            self._table.clear()
        self._table[key] = value

    def clear(self) -> None:
        """Drops all."""
        self._table.clear()


class Meaning(NamedTuple):
    """A row of a layout but for its numbers, and what makes something else than a dict of it."""

    template: Row
    make: Make | None


class Layout:
    """How the rows of one kind are taken apart: constants and numbers, by turns.

    ``texts`` are its keys by their numbers in the memo, ``refers_to`` takes from a memo all that it
    refers to. ``pairs`` are the pieces whose values come from the memo: what they mean in the
    pickle of ``token`` stands in ``meaning``. ``followers`` have come after it, the last one first.
    """

    __slots__ = (
        "constants", "followers", "form", "keys", "meaning", "pairs", "refers_to", "texts", "token",
    )  # fmt: skip

    def __init__(
        self, form: str, constants: tuple[bytes, ...], keys: tuple[str, ...], texts: Texts,
        pairs: list[bytes], refers_to: RefersTo, meaning: Meaning,
    ) -> None:  # fmt: skip
        self.form = struct.Struct(form)
        self.constants = constants
        self.keys = keys
        self.texts = texts
        self.pairs = pairs
        self.refers_to = refers_to
        self.meaning = meaning
        self.token: object = None
        self.followers: list[Layout] = []


class Layouts:
    """What is known of the rows.

    ``prepare(row, keys)`` may give what makes of the numbers under ``keys``, in their order, a
    value that stands where the dict would stand; None, or one that gives None, leaves the dict.
    ``meanings`` and ``pairs`` are by the bytes of a row or of a part of it and by the texts that it
    refers to, ``references`` takes the texts of such a part from a memo.
    """

    def __init__(self, prepare: Prepare | None = None) -> None:
        self.meanings: Bounded[tuple[Layout, tuple[str, ...]], Meaning] = Bounded(MAX_MEANINGS)
        self.pairs: Bounded[tuple[bytes, tuple[str, ...]], Row] = Bounded(MAX_MEANINGS)
        self.references: Bounded[bytes, RefersTo] = Bounded(MAX_MEANINGS)
        self._known: dict[tuple[object, ...], Layout] = {}
        self._seen: set[int] = set()
        self._texts: dict[Texts, Texts] = {}
        self._prepare = prepare

    def meaning(self, row: Row, keys: tuple[str, ...]) -> Meaning:
        """That of rows which differ from ``row`` in what is under ``keys``."""
        return Meaning(row, self._prepare(row, keys) if self._prepare else None)

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

    def get(self, key: tuple[object, ...]) -> Layout | None:
        """The layout of rows with these constants."""
        return self._known.get(key)

    def add(self, key: tuple[object, ...], layout: Layout) -> None:
        """Keeps it; all others are dropped when they are too many."""
        if len(self._known) >= MAX_LAYOUTS:
            self._known.clear()
            self._texts.clear()
            self.meanings.clear()
        self._known[key] = layout
