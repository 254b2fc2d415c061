"""Where in the text of a template file a key or a word stands: line numbers for error messages.

The parsed document has no positions, so they are looked up in the text. A file that is written
unlike the shipped ones (templates as inline tables) has no line: 0.
"""

from __future__ import annotations

import re
from typing import Any

FILE = -1  # not inside a template
_HEADER = re.compile(r"\s*\[\[\s*template\s*\]\]")
_TOP_KEY = re.compile(r"\s*[\"']?([A-Za-z_][\w-]*)[\"']?\s*=")


class SourceLines:
    """The lines of one file, counted from 1."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._headers = [i for i, line in enumerate(self._lines) if _HEADER.match(line)]

    def of(self, template: int, keys: tuple[str, ...] = (), word: Any = None) -> int:
        """Line of the ``template``-th template, of the key path inside it, and of a value there.

        The last of what can be found counts; 0 when nothing can.
        """
        first, last = self._section(template)
        if first < 0:
            return 0
        found = first
        for depth, key in enumerate(keys):
            place = self._find(found, last, _key_pattern(key, is_top=depth == 0))
            if place is None:
                return found + 1
            found = place
            last = min(last, self._end_of_value(found, last)) if depth == 0 else last
        if word is not None:
            place = self._find(found, last, _word_pattern(word))
            found = found if place is None else place
        return found + 1

    def _section(self, template: int) -> tuple[int, int]:
        """First line and one past the last of a template, or of what stands before all of them."""
        ends = [*self._headers, len(self._lines)]
        if template == FILE:
            return 0, ends[0]
        if template >= len(self._headers):
            return -1, -1
        return ends[template], ends[template + 1]

    def _end_of_value(self, first: int, last: int) -> int:
        """The line of the next top-level key: brackets count, quoted ones too."""
        depth = 0
        for index in range(first, last):
            if index > first and depth <= 0 and _TOP_KEY.match(self._lines[index]):
                return index
            code = self._lines[index].split("#")[0]
            depth += code.count("[") + code.count("{") - code.count("]") - code.count("}")
        return last

    def _find(self, first: int, last: int, pattern: re.Pattern[str]) -> int | None:
        return next((i for i in range(first, last) if pattern.search(self._lines[i])), None)


def _key_pattern(key: str, *, is_top: bool) -> re.Pattern[str]:
    start = r"^\s*" if is_top else r"(?<![\w-])"
    return re.compile(rf"{start}[\"']?{re.escape(key)}[\"']?\s*=")


def _word_pattern(word: Any) -> re.Pattern[str]:
    if isinstance(word, str):
        return re.compile(rf"[\"']{re.escape(word)}[\"']")
    return re.compile(rf"=\s*{re.escape(str(word))}\b")
