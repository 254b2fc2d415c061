"""Texts of several lines: Python's tracebacks, torchrun's table of failures, mpirun's report.

The parts are joined by where the lines come from. Where two processes without a prefix write a
traceback at once, nothing is said of the frame: it may be the other's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice

from comminsight.format.log_pattern import Values, number, rank_number, words
from comminsight.format.log_prefix import Key
from comminsight.format.log_time import iso_time
from comminsight.model.log_event import LogCode, LogTime

MAX_OPEN = 4096  # sources of lines with an unfinished text
MAX_QUIET_LINES = 2000  # of the file, since the last part of a text
HEAD = re.compile(r"Traceback \(most recent call last\):$", re.ASCII)
FRAME = re.compile(
    r' {1,8}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,200}))?',
    re.ASCII,
)
# indented as well, and no part of a traceback: its process was killed while it wrote
OUTSIDE = re.compile(r" {1,8}(?:what\(\):|Exit Code:|Reason:)", re.ASCII)
ENDS = "Error|Exception|Interrupt|Exit|Warning|Iteration|Timeout|Abort|Failure"
EXCEPTION = re.compile(
    rf"(?P<name>(?:[A-Za-z_]\w{{0,63}}\.){{1,8}}[A-Z]\w{{0,62}}?[a-z]\w{{0,62}}|\w{{0,64}}(?:{ENDS}))"
    r"(?:\(\w{1,64}\))?(?:: ?(?P<message>.{0,2000}))?$",
    re.ASCII,
)
TABLE = re.compile(r" {0,4}Failures:$", re.ASCII)
MAX_TABLE_GAP = 64  # lines of others between two rows
ROOT = re.compile(r"Root Cause \(first observed failure\):", re.ASCII)
ROW = re.compile(
    r" {0,4}(?:time {1,8}: (?P<time>\d{4}-\d\d-\d\d)_(?P<clock>\d\d:\d\d:\d\d)$"
    r"|host {1,8}: (?P<host>[\w.-]{1,255})$"
    r"|rank {1,8}: (?P<rank>\d{1,10}) \(local_rank: (?P<local_rank>\d{1,10})\)$"
    r"|exitcode {1,8}: (?P<exit_code>-?\d{1,6}) \(pid: (?P<pid>\d{1,10})\)"
    r"(?: {1,4}\(SIG\w{1,16}\))?$)",
    re.ASCII,
)
MPI_NAME = re.compile(
    r" {0,4}Process name: \[(?:\[\d{1,10},\d{1,10}\]|[\w.-]{1,255}@\d{1,10}),(\d{1,10})\]", re.ASCII
)
MPI_CODE = re.compile(r" {0,4}Exit code: {1,8}(\d{1,6})$", re.ASCII)
# how each line begins that is a part of a table; most lines of a log are none
TABULAR = re.compile(
    r" {0,4}(?:Failures:|Root Cause|(?:time|host|rank|exitcode) |Process name:|Exit code:)"
)
STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)", re.ASCII)


@dataclass(slots=True)
class Joined:
    """A finished text. ``origin`` overrides what the prefixes of its last line tell."""

    code: LogCode
    values: Values
    first_line: int
    last_line: int
    text: str = ""
    origin: dict[str, str | int] = field(default_factory=dict)
    stamp: LogTime | None = None
    key: Key | None = None


@dataclass(slots=True)
class _Traceback:
    first_line: int
    last_line: int
    head: str
    is_mixed: bool = False
    frame: re.Match[str] | None = None
    n_frames: int = 0

    def values(self) -> Values:
        values: Values = {"n_frames": self.n_frames}
        if self.frame is not None and not self.is_mixed:
            values["file"] = words(self.frame["file"])
            values["frame_line"] = int(self.frame["line"])
            values["function"] = words(self.frame["function"] or "")
        return values


@dataclass(slots=True)
class Joiner:
    """Keeps the unfinished texts of every source of lines."""

    tracebacks: dict[Key, _Traceback] = field(default_factory=dict)
    rows: dict[Key, dict[str, str]] = field(default_factory=dict)
    roots: set[Key] = field(default_factory=set)
    mpi: dict[Key, tuple[int, int]] = field(default_factory=dict)
    table_left: int = 0

    @property
    def is_open(self) -> bool:
        """True while the next line may be a part of a text, whatever it says."""
        return self.table_left > 0 or bool(self.tracebacks)

    def take(
        self, key: Key, line: int, text: str, *, is_torn: bool = False
    ) -> tuple[list[Joined], bool]:
        """What this line finishes, and whether it is a part of a text. ``is_torn``: its end is not
        there, so that a number or a name in it may be a part of another."""
        self.table_left -= 1
        finished = self._forgotten(line)
        if HEAD.match(text):
            return finished + self._head(key, line, text), True
        joined, is_part = ([], False) if is_torn else self._table(key, line, text)
        if is_part:
            return finished + joined, True
        traceback = self.tracebacks.get(key)
        if traceback is not None and text:
            if text[0] in " \t|+^" and not OUTSIDE.match(text):
                self._inside(key, traceback, line, "" if is_torn else text)
                return finished, True
            match = EXCEPTION.match(text)
            if match and (not is_torn or match["message"] is not None):
                del self.tracebacks[key]
                return [*finished, _exception(traceback, match, line, text)], True
        return finished, False

    def rest(self) -> list[Joined]:
        """The tracebacks of which the end was never written."""
        left = [_unfinished(one, key) for key, one in self.tracebacks.items()]
        self.tracebacks.clear()
        return left

    def _head(self, key: Key, line: int, text: str) -> list[Joined]:
        before = self.tracebacks.pop(key, None)
        self.tracebacks[key] = _Traceback(line, line, text, is_mixed=before is not None)
        if before is not None:
            before.is_mixed = True
            return [_unfinished(before, key)]
        if len(self.tracebacks) > MAX_OPEN:
            oldest = next(iter(self.tracebacks))
            return [_unfinished(self.tracebacks.pop(oldest), oldest)]
        return []

    def _inside(self, key: Key, traceback: _Traceback, line: int, text: str) -> None:
        traceback.last_line = line
        self.tracebacks[key] = self.tracebacks.pop(key)  # the longest quiet one stands first
        if match := FRAME.match(text):
            traceback.frame = match
            traceback.n_frames += 1

    def _forgotten(self, line: int) -> list[Joined]:
        """Those that nothing was added to for long: their process was killed while it wrote."""
        finished: list[Joined] = []
        if not self.tracebacks:
            return finished
        for key, one in list(islice(self.tracebacks.items(), 2)):
            if line - one.last_line > MAX_QUIET_LINES:
                finished.append(_unfinished(self.tracebacks.pop(key), key))
        return finished

    def _table(self, key: Key, line: int, text: str) -> tuple[list[Joined], bool]:
        if not TABULAR.match(text):
            return [], False
        if TABLE.match(text):
            self.table_left = MAX_TABLE_GAP
            return [], True
        if ROOT.match(text):
            self._bounded()
            self.roots.add(key)
            self.table_left = MAX_TABLE_GAP
            return [], True
        if match := ROW.match(text):
            self.table_left = MAX_TABLE_GAP
            return self._row(key, line, text, match), True
        if match := MPI_NAME.match(text):
            self._bounded()
            self.mpi[key] = (rank_number(match[1]), line)
            return [], True
        if match := MPI_CODE.match(text):
            task, first = self.mpi.pop(key, (-1, line))
            values: Values = {"exit_code": number(match[1])}
            where: dict[str, str | int] = {"task": task} if task >= 0 else {}
            return [Joined(LogCode.MPI_EXIT_CODE, values, first, line, text, where)], True
        return [], False

    def _row(self, key: Key, line: int, text: str, match: re.Match[str]) -> list[Joined]:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "time" in found or key not in self.rows:
            self._bounded()
            self.rows[key] = {"first_line": str(line)}
        row = self.rows[key]
        row.update(found)
        if "exit_code" not in found:
            return []
        del self.rows[key]
        is_root = key in self.roots
        self.roots.discard(key)
        code = LogCode.ELASTIC_ROOT_CAUSE if is_root else LogCode.ELASTIC_FAILURE
        origin: dict[str, str | int] = {"pid": number(row["pid"]), "host": row.get("host", "")}
        for name in ("rank", "local_rank"):
            if name in row:
                origin[name] = rank_number(row[name])
        values: Values = {"exit_code": number(row["exit_code"])}
        stamp = _row_time(row)
        return [Joined(code, values, int(row["first_line"]), line, text, origin, stamp)]

    def _bounded(self) -> None:
        if len(self.rows) + len(self.roots) + len(self.mpi) > MAX_OPEN:
            self.rows.clear()
            self.roots.clear()
            self.mpi.clear()


def _row_time(row: dict[str, str]) -> LogTime | None:
    match = STAMP.match(f"{row.get('time', '')}_{row.get('clock', '')}")
    return iso_time(*match.groups(), None, None) if match else None


def _exception(traceback: _Traceback, match: re.Match[str], line: int, text: str) -> Joined:
    values = traceback.values()
    values["exception"] = words(match["name"])
    values["message"] = words(match["message"] or "")
    return Joined(LogCode.PYTHON_EXCEPTION, values, traceback.first_line, line, text)


def _unfinished(traceback: _Traceback, key: Key) -> Joined:
    return Joined(
        LogCode.PYTHON_TRACEBACK_OPEN,
        traceback.values(),
        traceback.first_line,
        traceback.last_line,
        traceback.head,
        key=key,
    )
