"""The one reader of logs: a stream of bytes in, events out, every line accounted for.

Most lines of a log say nothing that a pattern knows. They are passed over with a
look-ups of their words in ``GATES``; only a line with one of these is taken apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.format import log_kernel, log_nccl, log_scheduler, log_torch
from comminsight.format.expanding import ByteStream
from comminsight.format.log_joined import Joined, Joiner
from comminsight.format.log_lines import Block, blocks
from comminsight.format.log_pattern import (
    ORIGIN_NAMES,
    AbsurdNumberError,
    Pattern,
    Values,
    first_match,
    number,
)
from comminsight.format.log_prefix import Origin, is_srun_labelled, split
from comminsight.format.log_time import FileClock
from comminsight.model.log_event import NO_TIME, LogCode, LogEvent, LogTail, LogTally, LogTime

MAX_TEXT_CHARS = 512
# every table without a header of its own; the first row that a line is of wins
PLAIN: tuple[Pattern, ...] = (
    log_torch.PATTERNS
    + log_scheduler.PATTERNS
    + log_kernel.PATTERNS
    + log_nccl.VERSION
    + log_nccl.BARE
)
# one of these stands as a word in every line that is an event, or begins one of several lines
GATES = frozenset(
    (
        b"ABORT AER Abort Aborted Avg Bus CANCELLED CUDA Duplicate EDAC Exit FAIL FAILED Failures "
        b"Fatal Floating GIL Hardware Heartbeat Illegal Killed Mismatched NCCL NET NVRM Node "
        b"OOMKilled OUT PG PM Process RCCL Root SO SXid Segmentation Signal SocketImpl "
        b"Terminated Terminating Timed Traceback Xid async barrier blocked bnxt clients "
        b"closing closure collective collectives completion connectFullMesh currently death "
        b"dump dumped enqueued exitCode exitcode exits extend fallocate files forcefully gloo "
        b"i40e ibv ice inconsistency irdma locked lockup mismatch mlx4 mlx5 monitoredBarrier "
        b"ncclInternalError ncclInvalidArgument ncclInvalidUsage ncclRemoteError "
        b"ncclSystemError ncclUnhandledCudaError ncclUniqueId nfs noticed oom peer preamble "
        b"pressure rcu recent req resource restart segfault segment signal socket srun "
        b"terminate terminated timeout traps unexpected watchdog what "
        b"successfully Map Filter Tokenizing tokenizing Tokenizer tokenizer Preprocessing "
        b"preprocessing Building building Generating Saving saving Saved saved mtu GNU shm "
        b"hang Hang hung hanging progress "
        b"Compiling compiling Capturing Evaluating Validating Loading AUTOTUNE"
    ).split()
) | frozenset(b"EI00%02d" % number for number in range(100))
TO_WORDS = bytes(one if bytes((one,)).isalnum() or one == 10 else 32 for one in range(256))


class LogReader:
    """Iterates once over the events of one log.

    ``tally`` and ``clock`` are whole when the iteration is over; ``clock.placed`` then puts the
    stamps into epoch time as far as the file allows. Raises InputError, while iterating, for a
    compressed file that does not expand or expands too far.
    """

    def __init__(self, stream: ByteStream, *, file: str = "") -> None:
        self.file = file
        self.clock = FileClock()
        self._stream = stream
        self._joiner = Joiner()
        self._is_labelled: bool | None = None
        self._last = (0, b"")
        self._counts = dict.fromkeys(LogTally.__struct_fields__, 0)

    @property
    def tally(self) -> LogTally:
        """Where the lines read so far went."""
        return LogTally(**self._counts)

    @property
    def tail(self) -> LogTail:
        """The last line read that is not empty."""
        line, data = self._last
        origin, text = split(data.decode("utf-8", "replace"), is_labelled=bool(self._is_labelled))
        return LogTail(line, text[:MAX_TEXT_CHARS], FileClock().best(origin.stamps))

    def __iter__(self) -> Iterator[LogEvent]:
        for block in blocks(self._stream, path=self.file):
            if self._is_labelled is None:
                self._is_labelled = is_srun_labelled(block.lines)
            yield from self._block(block)
        for one in self._joiner.rest():
            yield self._of_joined(one, Origin(), None, is_cut=False)

    def _block(self, block: Block) -> Iterator[LogEvent]:
        counts = self._counts
        first = counts["n_read"] + 1
        counts["n_read"] += len(block.lines)
        counts["n_cut"] += len(block.cut)
        counts["n_bytes"] += len(block.data) + 1
        counts["n_replaced"] += n_replaced(block)
        self._last = last_line(block, first) or self._last
        passed = set(block.cut)
        n_taken = 0
        for position in self._positions(block):
            n_taken += 1
            passed.discard(position)
            yield from self._line(block, position, first + position)
        counts["n_truncated"] += len(passed)
        counts["n_unknown"] += len(block.lines) - n_taken - len(passed)

    def _positions(self, block: Block) -> Iterator[int]:
        """The lines to look at: those with a gate, and all that follow an open traceback."""
        gated = gated_lines(block)
        position = n_passed = 0
        while position < len(block.lines):
            if not self._joiner.is_open:
                n_passed = bisect_left(gated, position, n_passed)
                if n_passed == len(gated):
                    return
                position = gated[n_passed]
            yield position
            position += 1

    def _line(self, block: Block, position: int, line: int) -> Iterator[LogEvent]:
        is_long = position in block.cut
        is_cut = is_long or (block.is_torn and position == len(block.lines) - 1)
        data = block.lines[position].lstrip(b"\0")  # a log that was emptied while it was written
        if b"\0" in data:
            self._counts["n_refused"] += 1
            return
        origin, text = split(data.decode("utf-8", "replace"), is_labelled=bool(self._is_labelled))
        stamp = self.clock.best(origin.stamps)
        finished, fate = self._joined(origin, text, line, is_torn=is_cut)
        for one in finished:
            yield self._of_joined(one, origin, stamp, is_cut=is_cut)
        if fate == "n_unknown":
            found, fate = self._found(origin, text, is_torn=is_cut)
            if found is not None:
                yield self._event(*found, origin, stamp, line, text, is_cut=is_cut)
        is_lost = fate == "n_unknown" and is_long
        self._counts["n_truncated" if is_lost else fate] += 1

    def _joined(
        self, origin: Origin, text: str, line: int, *, is_torn: bool
    ) -> tuple[list[Joined], str]:
        """What a line finishes, and which number of the tally counts it."""
        try:
            finished, is_part = self._joiner.take(origin.key, line, text, is_torn=is_torn)
        except AbsurdNumberError:
            return [], "n_refused"
        return finished, "n_emitted" if is_part else "n_unknown"

    @staticmethod
    def _found(
        origin: Origin, text: str, *, is_torn: bool
    ) -> tuple[tuple[LogCode, Values] | None, str]:
        """Code and values of a line, and which number of the tally counts it."""
        try:
            if "NCCL " in text and (header := log_nccl.HEADER.search(text)):
                origin.host, origin.pid = header["host"], number(header["pid"])
                origin.tid = number(header["tid"])
                found = log_nccl.body(text[header.end() :], header["level"], is_torn=is_torn)
            else:
                found = first_match(PLAIN, text, is_torn=is_torn)
        except AbsurdNumberError:
            return None, "n_refused"
        return found, "n_unknown" if found is None else "n_emitted"

    def _of_joined(
        self, one: Joined, origin: Origin, stamp: LogTime | None, *, is_cut: bool
    ) -> LogEvent:
        if one.key is not None:  # not of the line that is being read
            origin, stamp = Origin.of_key(one.key), None
        for name, value in one.origin.items():
            setattr(origin, name, value)
        code, values = one.code, one.values
        if code is LogCode.PYTHON_EXCEPTION and (known := _known(one.text, is_torn=is_cut)):
            code, values = known[0], {**values, **known[1]}
        if one.stamp is not None:
            stamp = self.clock.best([one.stamp])
        event = self._event(code, values, origin, stamp, one.last_line, one.text, is_cut=is_cut)
        return replace(event, first_line=one.first_line)

    def _event(
        self, code: LogCode, values: Values, origin: Origin, stamp: LogTime | None, line: int,
        text: str, *, is_cut: bool,
    ) -> LogEvent:  # fmt: skip
        self._counts["n_events"] += 1
        where = {}
        if not ORIGIN_NAMES.isdisjoint(values):
            where = {name: values.pop(name) for name in ORIGIN_NAMES & values.keys()}
        event = LogEvent(
            code=code, file=self.file, line=line, text=text[:MAX_TEXT_CHARS],
            time=NO_TIME if stamp is None else stamp, first_line=line, host=origin.host,
            pid=origin.pid, tid=origin.tid, rank=origin.rank, local_rank=origin.local_rank,
            task=origin.task, n_repeated=origin.n_repeated, is_cut=is_cut, values=values,
        )  # fmt: skip
        return replace(event, **where) if where else event


def _known(text: str, *, is_torn: bool) -> tuple[LogCode, Values] | None:
    """What the message of an exception is known as."""
    try:
        return first_match(PLAIN, text, is_torn=is_torn)
    except AbsurdNumberError:
        return None


def gated_lines(block: Block) -> list[int]:
    """The positions of the lines that contain a gate, ascending."""
    is_plain = GATES.isdisjoint
    lines = block.data.translate(TO_WORDS).split(b"\n")
    return [position for position, line in enumerate(lines) if not is_plain(line.split())]


def last_line(block: Block, first: int) -> tuple[int, bytes] | None:
    """Number and bytes of the last line that is not empty."""
    for position in range(len(block.lines) - 1, -1, -1):
        if block.lines[position].strip():
            return first + position, block.lines[position]
    return None


def n_replaced(block: Block) -> int:
    """How many lines are not UTF-8."""
    try:
        block.data.decode("utf-8")
    except UnicodeDecodeError:
        return sum(map(_is_foreign, block.lines))
    return 0


def _is_foreign(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
