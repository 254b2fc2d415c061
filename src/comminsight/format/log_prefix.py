"""What stands before the text of a log line: launchers, containers, collectors, journals, stamps.

They stack in any order, so that each kind is tried again and again from the left, told apart by the
first character. A prefix is taken off only where its form is unmistakable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from comminsight.format.document import UNREADABLE
from comminsight.format.log_time import (
    BOOT,
    CTIME,
    GLOG,
    ISO,
    SYSLOG,
    boot_time,
    ctime_time,
    glog_time,
    iso_time,
    syslog_time,
)
from comminsight.model.log_event import ClockKind, LogTime

MAX_LAYERS = 8
ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]", re.ASCII)
REPEATED = re.compile(r" ?\[repeated (\d{1,9})x across cluster\]", re.ASCII)
GLUED = re.compile(r"\[rank\d{1,9}\]:\[[EWIF]", re.ASCII)  # behind text without a newline
SRUN_LABEL = re.compile(rb" {0,6}\d{1,6}: ")
SLURM_ITSELF = (b"srun: ", b"slurmstepd: ")
SRUN_SAMPLE_LINES = 8
Key = tuple[str, int, int, int, int, str]


@dataclass(slots=True)
class Origin:
    """Where a line comes from, as its prefixes tell it; -1 and "" are unknown."""

    host: str = ""
    pid: int = -1
    tid: int = -1
    rank: int = -1
    local_rank: int = -1
    task: int = -1
    stream: str = ""  # stdout or stderr
    n_repeated: int = 1
    stamps: list[LogTime] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Lines of one key are written by one process, as far as the prefixes tell."""
        return (self.host, self.pid, self.rank, self.local_rank, self.task, self.stream)

    @classmethod
    def of_key(cls, key: Key) -> Origin:
        """What a key tells of the origin of its lines."""
        host, pid, rank, local_rank, task, stream = key
        return cls(host, pid, -1, rank, local_rank, task, stream)


class _Kubernetes(msgspec.Struct):
    host: str = ""
    pod_name: str = ""


class _Wrapped(msgspec.Struct):
    """A line as Docker's json-file driver, Fluent Bit, cloud loggers and the journal wrap it."""

    log: str = ""
    message: str = ""
    stream: str = ""
    time: str = ""
    timestamp: str = ""
    at_timestamp: str = msgspec.field(name="@timestamp", default="")
    text_payload: str = msgspec.field(name="textPayload", default="")
    journal_message: str = msgspec.field(name="MESSAGE", default="")
    journal_host: str = msgspec.field(name="_HOSTNAME", default="")
    journal_pid: str = msgspec.field(name="_PID", default="")
    journal_us: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")
    kubernetes: _Kubernetes = msgspec.field(default_factory=_Kubernetes)


WRAPPED = msgspec.json.Decoder(_Wrapped)
DECIMAL = re.compile(r"\d{1,16}", re.ASCII)
ISO_ALONE = re.compile(ISO, re.ASCII)
Take = Callable[[Origin, re.Match[str]], None]


def _is_iso(origin: Origin, match: re.Match[str]) -> None:
    origin.stamps.append(iso_time(*match.groups()[:8]))


def _is_cri(origin: Origin, match: re.Match[str]) -> None:
    _is_iso(origin, match)
    origin.stream = match[9]


def _is_iso_host(origin: Origin, match: re.Match[str]) -> None:
    _is_iso(origin, match)
    _program(origin, *match.group(9, 12))


def _is_syslog(origin: Origin, match: re.Match[str]) -> None:
    origin.stamps.append(syslog_time(*match.groups()[:6]))
    _program(origin, *match.group(7, 10))


def _program(origin: Origin, host: str, pid: str | None) -> None:
    origin.host = host
    if pid is not None:
        origin.pid = int(pid)


def _is_glog(origin: Origin, match: re.Match[str]) -> None:
    origin.stamps.append(glog_time(*match.groups()[:6]))


def _is_glog_python(origin: Origin, match: re.Match[str]) -> None:
    _is_glog(origin, match)
    origin.pid = int(match[7])


def _is_ctime(origin: Origin, match: re.Match[str]) -> None:
    origin.stamps.append(ctime_time(*match.groups()))


def _is_boot(origin: Origin, match: re.Match[str]) -> None:
    origin.stamps.append(boot_time(*match.groups()))


def _is_task(origin: Origin, match: re.Match[str]) -> None:
    origin.task = int(match[1])
    if match.lastindex == 2 and match[2]:
        origin.stream = match[2]


def _is_rank(origin: Origin, match: re.Match[str]) -> None:
    origin.rank = int(match[1])


def _is_local_rank(origin: Origin, match: re.Match[str]) -> None:
    origin.local_rank = int(match[1])


def _is_ray(origin: Origin, match: re.Match[str]) -> None:
    origin.pid = int(match[1])
    if match[2]:
        origin.host = match[2]


def _is_nothing(origin: Origin, match: re.Match[str]) -> None:
    """A prefix that tells nothing of where the line comes from."""


WORD = r"[\w.-]{1,64}"
HOST = r"[\w.:-]{1,255}"
# with a number, or the kernel: else "CUDA error: " would be a host and its program
PROGRAM = r"([\w.-]{1,255}) (?:(kernel)|([\w./@-]{1,64})\[(\d{1,10})\]): ?"
PYTHON_LOG = r"(?:\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] )?"


def _compiled(*rows: tuple[str, Take]) -> tuple[tuple[re.Pattern[str], Take], ...]:
    return tuple((re.compile(pattern, re.ASCII), take) for pattern, take in rows)


BRACKETED = _compiled(
    (r"\[rank(\d{1,9})\]: ?", _is_rank),
    (r"\[\d{1,9},(?:mpirank:)?(\d{1,9})(?:,[\w.-]{1,64})?\]<(stdout|stderr|stddiag)>: ?", _is_task),
    (r"\[(?:default|trainer)(\d{1,9})\]: ?", _is_local_rank),
    (rf"\[{GLOG} [\w.]{{1,64}}:\d{{1,6}}\] ?", _is_glog),
    (r"\[[EWIF] [\w.]{1,64}:\d{1,6}\] ?", _is_nothing),
    (rf"\[{ISO}\] ?", _is_iso),
    (rf"\[ *{BOOT}\] ?", _is_boot),
    (rf"\[{CTIME}\] ?", _is_ctime),
    (r"\[(?:pod|ns)/[\w./-]{1,253}\] ", _is_nothing),
    (rf"\[(\d{{1,6}})\] (?={WORD}:\d{{1,10}}:\d{{1,10}} )", _is_task),
)
DIGITS = _compiled(
    (rf"{ISO} (stdout|stderr) [FP] ", _is_cri),
    (rf"{ISO} {PROGRAM}", _is_iso_host),
    (rf"{ISO}:? ?(?:- )?", _is_iso),
    (r"(\d{1,6}): ", _is_task),
)
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SYSLOGS = _compiled((rf"{SYSLOG} {PROGRAM}", _is_syslog))
GLOGS = _compiled(
    # in Python the number is the process; in C++, and in Python of old, the thread
    (rf"{GLOG} (\d{{1,7}}) [\w./-]{{1,200}}\.py:\d{{1,6}}\] ?", _is_glog_python),
    (rf"{GLOG}(?: \d{{1,20}})? [\w./-]{{1,200}}:\d{{1,6}}\] ?", _is_glog),
)
FACILITIES = _compiled(
    (r"(?:kern|user|daemon) {0,4}:(?:emerg|alert|crit|err|warn|notice|info|debug) {0,4}: ",
     _is_nothing),
)  # fmt: skip
TORCH = _compiled((rf"torch\.[a-z_.]{{1,100}}: {PYTHON_LOG}", _is_nothing))
LEVELS = _compiled((r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,100}:", _is_nothing))
# with which letters they begin: most lines begin with another
LETTERS = (
    (CAPITALS, SYSLOGS), ("EWIF", GLOGS), ("kud", FACILITIES), ("t", TORCH), ("DIWEC", LEVELS),
)  # fmt: skip
RAY = _compiled(
    (rf"\({WORD}(?:\[[\w=.-]{{1,64}}\])? (?:[\w=.-]{{1,64}} )?pid=(\d{{1,10}})"
     rf"(?:, ip=({HOST}))?\) ", _is_ray),
    (r"\((?:raylet|gcs_server|autoscaler)(?:, ip=[\w.:-]{1,64})?\) ", _is_nothing),
)  # fmt: skip
BLANKS = _compiled((r" {1,6}(\d{1,6}): ", _is_task))
TABLES: dict[str, tuple[tuple[re.Pattern[str], Take], ...]] = {
    "[": BRACKETED,
    "(": RAY,
    " ": BLANKS,
    **dict.fromkeys("0123456789", DIGITS),
    **{
        letter: tuple(row for begins, rows in LETTERS if letter in begins for row in rows)
        for letter in CAPITALS + "kudt"
    },
}


def is_srun_labelled(lines: list[bytes]) -> bool:
    """Whether all of the first lines carry the label of ``srun --label``: one alone may be text.
    What srun itself says has none."""
    written = [line for line in lines if line.strip() and not line.startswith(SLURM_ITSELF)]
    return len(written) >= SRUN_SAMPLE_LINES and all(map(SRUN_LABEL.match, written))


def split(line: str, *, is_labelled: bool = False) -> tuple[Origin, str]:
    """What the prefixes of ``line`` tell, and the text behind them."""
    origin = Origin()
    if line.startswith("{"):
        line = _unwrapped(origin, line)
    if "\r" in line:  # a progress bar: what a terminal would show last
        line = line.rstrip("\r").rpartition("\r")[2]
    if "\x1b" in line:
        line = ANSI.sub("", line)
    if "[repeated " in line and (found := REPEATED.search(line)):
        origin.n_repeated = int(found[1])
        line = line[: found.start()] + line[found.end() :]
    begin = _layers(origin, line, 0, is_labelled=is_labelled)
    if "[rank" in line and (glued := GLUED.search(line, begin)):
        begin = _layers(origin, line, glued.start(), is_labelled=False)
    return origin, line[begin:].rstrip()


def _layers(origin: Origin, line: str, begin: int, *, is_labelled: bool) -> int:
    """Where the text behind all prefixes from ``begin`` on begins."""
    for _ in range(MAX_LAYERS):
        end = _layer(origin, line, begin, is_labelled=is_labelled)
        if end == begin:
            break
        begin = end
    return begin


def _layer(origin: Origin, line: str, begin: int, *, is_labelled: bool) -> int:
    """Where the prefix at ``begin`` ends; ``begin`` where there is none."""
    rows = TABLES.get(line[begin : begin + 1])
    if rows is None:
        return begin
    for pattern, take in rows:
        if match := pattern.match(line, begin):
            if take is _is_task and pattern.pattern.startswith(("(", " ")) and not is_labelled:
                continue
            take(origin, match)
            return match.end()
    return begin


def _unwrapped(origin: Origin, line: str) -> str:
    """The line inside a JSON object; the same line where there is none inside."""
    try:
        wrapped = WRAPPED.decode(line)
    except UNREADABLE:
        return line
    inner = wrapped.log or wrapped.message or wrapped.text_payload or wrapped.journal_message
    if not inner:
        return line
    stamp = wrapped.time or wrapped.timestamp or wrapped.at_timestamp
    if match := ISO_ALONE.match(stamp):
        origin.stamps.append(iso_time(*match.groups()))
    origin.stream, origin.host = wrapped.stream, wrapped.kubernetes.host or wrapped.journal_host
    if DECIMAL.fullmatch(wrapped.journal_pid):
        origin.pid = int(wrapped.journal_pid)
    if DECIMAL.fullmatch(wrapped.journal_us):
        origin.stamps.append(LogTime(ClockKind.ZONED, int(wrapped.journal_us) * 1000, 1000))
    return inner.rstrip("\n")
