"""Line breaks in mixed Chinese and Latin text: between words, and between wide characters."""

from __future__ import annotations

import re

from rich.cells import cell_len

_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
_NOT_FIRST = "，。；：）、！？…"
_UNIT = re.compile(rf"[{_WIDE}][{_NOT_FIRST}]*|[^\s{_WIDE}]+[{_NOT_FIRST}]*|\s+")


def flow(text: str, width: int) -> str:
    """``text`` with line breaks so that no line is wider than ``width`` cells.

    A line never begins with closing punctuation. A single word wider than a line stays whole.
    """
    return "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    lines = [""]
    used = 0
    for unit in _UNIT.findall(line):
        cells = cell_len(unit)
        if used and used + cells > width and not unit.isspace():
            lines.append("")
            used = 0
        lines[-1] += unit
        used += cells
    return "\n".join(text.rstrip() for text in lines)
