"""What to do about ranks that are gone: it follows from how each of them ended.

An exception stands in a traceback, and no GPU and no memory limit is to be looked at for it; a
SIGKILL leaves no word of the process, and only the kernel and the scheduler know who sent it.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from comminsight.analysis.log_ends import RankLine
from comminsight.diagnosis import codes
from comminsight.diagnosis import codes_ends as ends
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_logs import COMPARE_BATCHES
from comminsight.model.hang import Liveness, RankState
from comminsight.model.verdict import Message

MAX_TRACEBACKS = 4
ENDED_WELL = "exit code 0"
_SIGNAL = re.compile(r"signal (\d{1,3})\b|\((SIG[A-Z0-9]+)\)|\b(SIG[A-Z0-9]+)\b", re.ASCII)
_EXIT = re.compile(r"exit code (-?\d{1,6})", re.ASCII)
_ASKED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


class DeathWay(StrEnum):
    """How a process ended. The values but the last five are names of faults in logs."""

    EXCEPTION = "exception"
    NO_MEMORY = "no_memory"
    OOM_KILL = "oom_kill"
    KILLED = "killed"
    GPU_FAULT = "gpu_fault"
    GPU_HARDWARE = "gpu_hardware"
    CRASH = "crash"
    ASKED = "asked"
    EXITED = "exited"  # by itself, with a code of its own
    LEFT = "left"
    UNKNOWN = "unknown"


class Death(msgspec.Struct, frozen=True):
    """One rank that is gone: how, as a launcher tells it ("" unknown), on which host, and the line
    of its log that tells why."""

    rank: int
    status: str = ""
    host: str = ""
    line: RankLine | None = None

    @property
    def way(self) -> DeathWay:
        """By its log where that says more than the status does."""
        name = self.line.fault.name if self.line is not None else ""
        if name == "vanished":
            return way_of(self.status) if self.status else DeathWay.KILLED
        return DeathWay(name) if name in _TOLD else way_of(self.status)


_TOLD = frozenset(DeathWay) - {DeathWay.ASKED, DeathWay.EXITED, DeathWay.UNKNOWN}


def death_of(rank: int, state: RankState | None) -> Death:
    """The end of a rank by what was last seen of it; one that closed its recorder left in order."""
    if state is None:
        return Death(rank)
    has_left = state.liveness is Liveness.CLOSED
    return Death(rank, state.exit_status or (ENDED_WELL if has_left else ""), state.host)


def way_of(status: str) -> DeathWay:
    """How a process ended that ended with ``status``, such as ``exit code 1`` or ``signal 9``."""
    number, code = _signal_of(status), _EXIT.search(status)
    if number == signal.SIGKILL:
        return DeathWay.KILLED
    if number in _ASKED:
        return DeathWay.ASKED
    if number in _CRASHES:
        return DeathWay.CRASH
    if number:
        return DeathWay.EXITED  # an abort is what a program ends itself with
    if code is None:
        return DeathWay.UNKNOWN
    return DeathWay.EXITED if int(code[1]) else DeathWay.LEFT


def death_actions(deaths: Iterable[Death]) -> Iterator[Message]:
    """The next steps, those of each way of ending once for all its ranks."""
    by_way: dict[DeathWay, list[Death]] = defaultdict(list)
    for one in deaths:
        by_way[one.way].append(one)
    unread = sorted(
        one.rank
        for way, own in by_way.items()
        for one in own
        if way is not DeathWay.LEFT and (way is not DeathWay.EXCEPTION or one.line is None)
    )
    for one in by_way.get(DeathWay.EXCEPTION, [])[:MAX_TRACEBACKS]:
        if one.line is not None:
            event = one.line.event
            yield message(
                ends.READ_TRACEBACK, rank=one.rank, source=event.file,
                line=event.first_line or event.line,
            )  # fmt: skip
    if unread:
        yield message(codes.READ_FIRST_ERROR, ranks=unread)
    for way in DeathWay:
        if own := by_way.get(way):
            yield from _of_way(way, own)


def _of_way(way: DeathWay, deaths: Sequence[Death]) -> Iterator[Message]:
    ranks = sorted(one.rank for one in deaths)
    hosts = sorted({one.host for one in deaths} - {""})
    code = _CODE_OF_WAY.get(way)
    if code is not None:
        yield message(code, ranks=ranks)
    log = _KERNEL_LOG_OF_WAY.get(way)
    if log is not None and hosts:
        yield message(log, hosts=hosts)


def _signal_of(status: str) -> int:
    """The number of the signal; 0 for none. A shell adds 128 to it and calls it an exit code."""
    found = _SIGNAL.search(status)
    if found is None:
        code = _EXIT.search(status)
        number = int(code[1]) if code is not None else 0
        return number - 128 if 128 < number < 192 else max(0, -number)
    if found[1]:
        return int(found[1])
    return int(getattr(signal, found[2] or found[3], 0))


_CODE_OF_WAY: dict[DeathWay, str] = {
    DeathWay.NO_MEMORY: ends.FREE_MEMORY,
    DeathWay.OOM_KILL: ends.FREE_MEMORY,
    DeathWay.KILLED: ends.FIND_KILLER,
    DeathWay.ASKED: ends.FIND_SENDER,
    DeathWay.GPU_FAULT: ends.CHECK_KERNEL_CODE,
    DeathWay.GPU_HARDWARE: ends.CHECK_GPU,
    DeathWay.CRASH: ends.READ_CRASH,
    DeathWay.LEFT: COMPARE_BATCHES,
}
_KERNEL_LOG_OF_WAY: dict[DeathWay, str] = {
    DeathWay.OOM_KILL: ends.READ_KERNEL_OOM,
    DeathWay.KILLED: ends.READ_KERNEL_OOM,
    DeathWay.GPU_FAULT: ends.READ_KERNEL_XID,
    DeathWay.GPU_HARDWARE: ends.READ_KERNEL_XID,
    DeathWay.UNKNOWN: codes.READ_KERNEL_LOG,
}
