"""The text that NCCL's RAS writes for people, read line by line.

It names members only where few differ from the many (``verbose`` names more), so that most of them
are numbers of a group. A line that no pattern knows is counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from comminsight.model.ops import Op
from comminsight.model.ras import (
    RasAnswer,
    RasCommunicator,
    RasForm,
    RasLaunches,
    RasPresence,
    RasProcess,
    RasRank,
)

MAX_COMM_SIZE = 1 << 20
OP_OF_FUNCTION: dict[str, int] = {
    "Broadcast": Op.BROADCAST,
    "Reduce": Op.REDUCE,
    "AllGather": Op.ALL_GATHER,
    "ReduceScatter": Op.REDUCE_SCATTER,
    "AllReduce": Op.ALL_REDUCE,
}
ERROR_NAMES = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
}
NO_ERROR = (0, 7)  # success, in progress
ERROR_WORDS = {
    "Unhandled CUDA error": 1,
    "System error": 2,
    "Internal error": 3,
    "Invalid argument": 4,
    "Invalid usage": 5,
    "Remote process error": 6,
}
LAST_HEADING = "Warnings"
MAX_LINE_CHARS = 1 << 18


def error_name(result: int) -> str:
    """The name of an ``ncclResult_t``, "" for none."""
    if result in NO_ERROR:
        return ""
    return ERROR_NAMES.get(result, f"ncclResult {result}")


def read_text(text: str) -> RasAnswer:
    """The answer of a whole or torn text.

    A line with a number that cannot be is counted as unread: NCCL 2.27.3 writes ranks such as
    1057455228 (NVIDIA/nccl issue 1762) beside good ones.
    """
    reader = _Reader()
    for line in text.split("\n"):
        if len(line) > MAX_LINE_CHARS:
            reader.n_unread += 1
        else:
            reader.take(line.rstrip())
    return reader.answer()


class _BeyondBoundsError(Exception):
    """No job has so many ranks."""


@dataclass(slots=True)
class _Draft:
    """A communicator while its lines are read."""

    group: int
    comm_hash: int
    ranks: dict[int, RasRank] = field(default_factory=dict)
    launches: list[tuple[int, int, int, list[int]]] = field(default_factory=list)

    def update(self, comm_rank: int, **more: object) -> None:
        known = self.ranks.get(comm_rank)
        if known is None:
            known = RasRank(comm_rank=comm_rank, presence=RasPresence.ANSWERED)
        self.ranks[comm_rank] = replace(known, **more)


@dataclass(slots=True)
class _Reader:
    """Keeps the block that the next line belongs to."""

    version: str = ""
    sizes: dict[int, int] = field(default_factory=dict)
    drafts: dict[tuple[str, int], _Draft] = field(default_factory=dict)
    gone: dict[RasPresence, list[RasProcess]] = field(default_factory=lambda: defaultdict(list))
    n_gone: dict[RasPresence, int] = field(default_factory=dict)
    n_timeouts: int = 0
    n_unread: int = 0
    is_whole: bool = False
    draft: _Draft | None = None
    presence: RasPresence | None = None  # of the processes that are being listed
    op: int = 0
    error_field: str = ""
    shared: dict[str, object] | None = None  # what the members listed next have in common
    listed: list[int] | None = None  # takes them, where their group was counted before

    def take(self, line: str) -> None:
        for pattern, act in PATTERNS:
            if match := pattern.fullmatch(line):
                try:
                    act(self, match)
                except _BeyondBoundsError:
                    self.n_unread += 1
                return
        self.n_unread += bool(line.strip())

    def answer(self) -> RasAnswer:
        dead = set(self.gone.get(RasPresence.DEAD, ()))
        communicators = tuple(self._communicator(one, dead) for one in self.drafts.values())
        return RasAnswer(
            form=RasForm.TEXT,
            nccl_version=self.version,
            communicators=communicators,
            gone={presence: tuple(dict.fromkeys(found)) for presence, found in self.gone.items()},
            n_gone=dict(self.n_gone),
            n_timeouts=self.n_timeouts,
            is_whole=self.is_whole,
            n_unread=self.n_unread,
        )

    def _communicator(self, one: _Draft, dead: set[RasProcess]) -> RasCommunicator:
        size = self.sizes.get(one.group, 0)
        ranks = [
            replace(rank, presence=RasPresence.DEAD)
            if rank.presence is RasPresence.SILENT and rank.process in dead
            else rank
            for comm_rank, rank in sorted(one.ranks.items())
            if comm_rank < size or not size
        ]
        self.n_unread += len(one.ranks) - len(ranks)
        launches = [
            RasLaunches(op=op, n_launched=n, n_ranks=n_ranks, comm_ranks=tuple(sorted(ranks)))
            for op, n, n_ranks, ranks in one.launches
        ]
        return RasCommunicator(
            comm_hash=one.comm_hash,
            comm_size=size,
            ranks=tuple(ranks),
            launches=tuple(launches),
        )

    def on_version(self, match: re.Match[str]) -> None:
        self.version = match[1]

    def on_table_row(self, match: re.Match[str]) -> None:
        self.sizes[int(match[1])] = bounded(match[2])

    def on_heading(self, match: re.Match[str]) -> None:
        self.is_whole |= match[0] == LAST_HEADING
        self._close()

    def on_block(self, match: re.Match[str]) -> None:
        self._close()
        named = {"INCOMPLETE": RasPresence.SILENT, "DEAD": RasPresence.DEAD}
        self.presence = named.get(match[0])

    def on_communicator(self, match: re.Match[str]) -> None:
        self._close()
        made = _Draft(int(match[2]), int(match[3], 16))
        self.draft = self.drafts.setdefault((match[1], made.comm_hash), made)

    def _close(self) -> None:
        self.draft = self.presence = self.shared = self.listed = None
        self.op, self.error_field = 0, ""

    def on_missing_processes(self, match: re.Match[str]) -> None:
        self.n_gone[RasPresence.SILENT] = int(match[1])

    def on_dead_processes(self, match: re.Match[str]) -> None:
        self.n_gone[RasPresence.DEAD] = int(match[1])

    def on_process(self, match: re.Match[str]) -> None:
        if self.presence is not None:
            self.gone[self.presence].append(RasProcess(host=match[2], pid=int(match[1])))

    def on_timeouts(self, match: re.Match[str]) -> None:
        self.n_timeouts = int(match[1])

    def on_missing_ranks(self, match: re.Match[str]) -> None:
        self.shared, self.listed = {"presence": RasPresence.SILENT}, None

    def on_error_kind(self, match: re.Match[str]) -> None:
        self.error_field = "init_error" if match[1] == "Initialization" else "async_error"

    def on_function(self, match: re.Match[str]) -> None:
        self.op = OP_OF_FUNCTION.get(match[1], 0)
        self.n_unread += not self.op

    def on_many_launched(self, match: re.Match[str]) -> None:
        self.shared, self.listed = {}, []
        self._launched(bounded(match[1]), count(match[2]), self.listed)

    def on_one_launched(self, match: re.Match[str]) -> None:
        comm_rank = bounded(match[1])
        self._launched(1, count(match[2]), [comm_rank])
        self._member(comm_rank, match, {})

    def _launched(self, n_ranks: int, n_launched: int, members: list[int]) -> None:
        if self.draft is not None and self.op:
            self.draft.launches.append((self.op, n_launched, n_ranks, members))

    def on_many_status(self, match: re.Match[str]) -> None:
        self.shared, self.listed = status_fields(match[2]), None

    def on_one_status(self, match: re.Match[str]) -> None:
        self._member(bounded(match[1]), match, status_fields(match[2]))

    def on_many_reported(self, match: re.Match[str]) -> None:
        self.shared, self.listed = self._error(match[2]), None

    def on_one_reported(self, match: re.Match[str]) -> None:
        self._member(bounded(match[1]), match, self._error(match[2]))

    def _error(self, words: str) -> dict[str, object]:
        if not self.error_field:
            return {}
        number = ERROR_WORDS.get(words)
        return {self.error_field: error_name(number) if number is not None else words}

    def on_member(self, match: re.Match[str]) -> None:
        comm_rank = bounded(match[1])
        if self.listed is not None:
            self.listed.append(comm_rank)
        self._member(comm_rank, match, self.shared or {})

    def _member(self, comm_rank: int, match: re.Match[str], more: dict[str, object]) -> None:
        if self.draft is None:
            self.n_unread += 1
            return
        where: dict[str, object] = {}
        if match["pid"] is not None:
            where["process"] = RasProcess(host=match["host"], pid=int(match["pid"]))
            where["cuda_device"] = int(match["gpu"])
        self.draft.update(comm_rank, **where, **more)

    def on_nothing(self, match: re.Match[str]) -> None:
        """A line that only decorates."""


def bounded(digits: str) -> int:
    """A number of ranks; raises _BeyondBoundsError for one that no job has."""
    if (number := int(digits)) > MAX_COMM_SIZE:
        raise _BeyondBoundsError
    return number


def count(digits: str | None) -> int:
    """A number of launches, 0 of none."""
    return int(digits) if digits else 0


def status_fields(status: str) -> dict[str, object]:
    """What a member's status says of it."""
    if status == "NOCOMM":
        return {"status": status, "presence": RasPresence.LEFT}
    return {"status": status}


WHERE = (
    r" -- (?:GPU (?P<gpu>\d{1,6})(?: \(NVML \d+\))? managed by process (?P<pid>\d{1,18})"
    r" on node (?P<host>\S+)|\[process information not found\])"
)
LAUNCHED = r"(?:launched up to operation (\d{1,18})|not launched any operations)"
Act = Callable[[_Reader, re.Match[str]], None]
PATTERNS: tuple[tuple[re.Pattern[str], Act], ...] = tuple(
    (re.compile(pattern, re.ASCII), act)
    for pattern, act in (
        (rf"  Rank (\d{{1,9}}){WHERE}", _Reader.on_member),
        (rf"  Rank (\d{{1,9}}) has {LAUNCHED}{WHERE}", _Reader.on_one_launched),
        (rf"  (\d{{1,9}}) ranks have {LAUNCHED}", _Reader.on_many_launched),
        (rf"  Rank (\d{{1,9}}) has status ([A-Z]+){WHERE}", _Reader.on_one_status),
        (r"  (\d{1,9}) ranks have status ([A-Z]+)", _Reader.on_many_status),
        (rf"  Rank (\d{{1,9}}) reported (.+?){WHERE}", _Reader.on_one_reported),
        (r"  (\d{1,9}) ranks reported (.+)", _Reader.on_many_reported),
        (r"#((\d{1,9})-\d+) \(([0-9a-f]{1,16})\) [A-Z,]+", _Reader.on_communicator),
        (r"  Communicator ranks have different (\w+) operation counts", _Reader.on_function),
        (r"  Communicator ranks have different status", _Reader.on_nothing),
        (r"  Process (\d{1,18}) on node (\S+) managing GPUs? .+", _Reader.on_process),
        (r"  (Initialization|Asynchronous) errors? on \d+ ranks?", _Reader.on_error_kind),
        (r"  Missing communicator data from \d+ ranks?", _Reader.on_missing_ranks),
        (
            r"  Missing communicator data from (\d{1,9}) job process(?:es)?",
            _Reader.on_missing_processes,
        ),
        (
            r"  (\d{1,9}) job process(?:es are| is) considered dead.*",
            _Reader.on_dead_processes,
        ),
        (r"  Encountered (\d{1,9}) communication timeouts? .*", _Reader.on_timeouts),
        (
            r" *(\d{1,9}) +\d+ +\d+ +\d+(?:-\d+)? +(\d{1,9}) +\d+ +[A-Z]+ +[A-Z,]+",
            _Reader.on_table_row,
        ),
        (r"Job summary|Communicators\.\.\..*|Errors|Warnings", _Reader.on_heading),
        (r"INCOMPLETE|DEAD|TIMEOUT", _Reader.on_block),
        (r"NCCL version (\S+).*", _Reader.on_version),
        (r"=+|CUDA .*|[ (#].*per (?:node|process|comm).*|No comm.*", _Reader.on_nothing),
        (r"Group +Comms.*|(?: +Nodes| +Processes).*|\(total\).*|[ \d]+", _Reader.on_nothing),
        (r"The outlier nodes?:|  Node \S+ running .*|  \[could not find .*", _Reader.on_nothing),
    )
)
