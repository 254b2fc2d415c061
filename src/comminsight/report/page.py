"""A page of text for a terminal: headings, labelled fields, tables and verbatim blocks.

Plain text carries no escape codes and no trailing blanks. Text from outside (names, stacks, log
lines) is shown, never interpreted: no markup, and control characters are written out.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from comminsight.report.catalogue import Catalogue, catalogue
from comminsight.report.flow import flow

MIN_WIDTH = 40
INDENT = 2
GAP = 2
MIN_NAME_CHARS = 4
MAX_VERBATIM_LINES = 60

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """``text`` with control and direction characters written as escapes; tabs become blanks."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text.expandtabs(4))


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to colour what goes to ``stream``: a terminal, and NO_COLOR unset or empty."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the catalogue code of its header, and how wide its text may grow (0 = number)."""

    code: str
    max_chars: int = 0


class Page:
    """Collects lines of one language and width; ``text()`` gives the page."""

    def __init__(self, *, lang: str, width: int, color: bool) -> None:
        """An empty page, at least ``MIN_WIDTH`` wide. Raises UsageError for an unknown language."""
        self.words: Catalogue = catalogue(lang)
        self.is_colored = color
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=max(width, MIN_WIDTH),
            color_system="standard" if color else None,
            force_terminal=color,
            no_color=not color,
            force_jupyter=False,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        """Everything written so far."""
        written = self._buffer.getvalue()
        if self.is_colored:
            return written
        return "".join(f"{line.rstrip()}\n" for line in written.splitlines())

    def sentence(self, text: str, *, style: str = "") -> None:
        """One paragraph from the left edge."""
        self._put(Text(flow(printable(text), self._console.width), style=style))

    def heading(self, code: str, **params: object) -> None:
        """A blank line and the title of a section."""
        self._put(Text(""))
        self.sentence(self.words.text(f"heading.{code}", **params), style="bold cyan")

    def fields(self, rows: Iterable[tuple[str, str]]) -> None:
        """Labels (catalogue codes under ``field``) with their values; empty values are left out."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for code, value in rows:
            if value:
                label = self.words.word("field", code)
                grid.add_row(Text(label, style="dim"), Text(printable(value)))
        if grid.row_count:
            self._put(_indented(grid))

    def bullets(self, texts: Iterable[str]) -> None:
        """One hanging paragraph per text."""
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for text in texts:
            grid.add_row("-", Text(flow(printable(text), self._console.width - 2 * INDENT)))
        if grid.row_count:
            self._put(_indented(grid))

    def table(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[str]],
        *,
        marked: Iterable[int] = (),
    ) -> None:
        """A table without rules: numbers to the right and whole, names cut with an ellipsis.

        ``marked`` are row numbers to stress by colour; a mark in the text is the caller's.
        """
        drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        headers = [self.words.word("column", column.code) for column in columns]
        cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
        widths = _widths(columns, [headers, *cells], self._console.width - INDENT)
        for column, header, width in zip(columns, headers, widths, strict=True):
            drawn.add_column(
                Text(header),
                justify="left" if column.max_chars else "right",
                width=width,
                overflow="ellipsis",
                no_wrap=True,
            )
        stressed = frozenset(marked)
        for number, row in enumerate(cells):
            drawn.add_row(*map(Text, row), style="bold red" if number in stressed else "")
        self._put(_indented(drawn))

    def note(self, text: str) -> None:
        """An indented paragraph that explains what stands above it."""
        shown = Text(flow(printable(text), self._console.width - INDENT), style="dim")
        self._put(Padding(shown, (0, 0, 0, INDENT)))

    def commands(self, lines: Iterable[str]) -> None:
        """Command lines to copy, indented and never wrapped."""
        for line in lines:
            self._put(Text("      " + printable(line), style="dim"), soft_wrap=True)

    def verbatim(self, text: str) -> None:
        """Foreign text as it is, indented and never wrapped; the end of a very long one is cut."""
        lines = text.splitlines()
        for line in lines[:MAX_VERBATIM_LINES]:
            self._put(Text("      " + printable(line)), soft_wrap=True)
        if len(lines) > MAX_VERBATIM_LINES:
            rest = len(lines) - MAX_VERBATIM_LINES
            self._put(Text("      " + self.words.text("note.more_lines", n=rest)))

    def _put(self, what: RenderableType, *, soft_wrap: bool = False) -> None:
        self._console.print(what, soft_wrap=soft_wrap)


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, INDENT), expand=False)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], budget_chars: int
) -> list[int]:
    """Width of each column: numbers as wide as they are, names share what is left of the line."""
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    names = [number for number, column in enumerate(columns) if column.max_chars]
    for number in names:
        widths[number] = min(widths[number], columns[number].max_chars)
    excess = sum(widths) + GAP * (len(widths) - 1) - budget_chars
    while excess > 0 and (wide := [n for n in names if widths[n] > MIN_NAME_CHARS]):
        widths[max(wide, key=lambda n: widths[n])] -= 1
        excess -= 1
    return widths
