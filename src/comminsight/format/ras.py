"""Answers of NCCL's RAS (``STATUS`` or ``ncclras``), JSON or text, told apart by content.

A newer NCCL may add keys and lines: they are passed over, and counted where they might have meant
something. What is there must be of the kind that it claims to be.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.expanding import expanded_bytes
from comminsight.format.ras_text import MAX_COMM_SIZE, OP_OF_FUNCTION, error_name, read_text
from comminsight.model.ras import (
    RasAnswer,
    RasCommunicator,
    RasForm,
    RasLaunches,
    RasPresence,
    RasProcess,
    RasRank,
)

MAX_ANSWER_BYTES = 64 << 20  # 100,000 members at 600 bytes each
MAX_MEMBERS = 1 << 20  # over all communicators
MAX_TABLES = 1 << 21  # of JSON: a member has up to three
MAX_LINES = 1 << 17  # of text: members are listed only where they differ from others
MAX_PROTOCOL_LINES = 16
STAMP = "%Y-%m-%d %H:%M:%S"
NEXT_STEP = "give what `ncclras -v` or `ncclras -v -f json` printed"
PROTOCOL_LINE = re.compile(rb"(SERVER PROTOCOL [^\n]*|OK)\r?\n")
TEXT_WORDS = (b"Job summary", b"Communicators...")
TEXT_MARK = re.compile(rb"^(Job summary|Communicators\.\.\.)", re.MULTILINE)
JSON_MARKS = (b'"communicators"', b'"nccl_version"', b'"communicators_count"')
HASH = re.compile(r"(?:0x)?([0-9a-f]{1,16})", re.IGNORECASE)


def is_ras(head: bytes) -> bool:
    """Whether a file that begins so looks like an answer: by its headings, or its first keys."""
    body = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    while line := PROTOCOL_LINE.match(body):
        body = body[line.end() :].lstrip()
    if body.startswith(b"{"):
        return any(key in body for key in JSON_MARKS)
    return any(word in body for word in TEXT_WORDS) and TEXT_MARK.search(body) is not None


def parse_ras(data: bytes, *, path: str = "") -> RasAnswer:
    """The answer in ``data``, which may be compressed; lines of the protocol before it are passed
    over.

    Raises InputError naming file and place when it is not one or is beyond all bounds.
    """
    data = expanded_bytes(data, max_bytes=MAX_ANSWER_BYTES, path=path, next_step=NEXT_STEP)
    begin = 0
    for _ in range(MAX_PROTOCOL_LINES):
        if (line := PROTOCOL_LINE.match(data, begin)) is None:
            break
        begin = line.end()
    body = data[begin:].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    if body.startswith(b"{"):
        return read_json(body, path)
    if TEXT_MARK.search(body):
        if body.count(b"\n") > MAX_LINES:
            raise InputError(f"more than {MAX_LINES:,} lines", path=path, next_step=NEXT_STEP)
        return read_text(body.decode("utf-8", "replace"))
    raise InputError(
        "neither the JSON nor the text that NCCL's RAS writes", path=path, next_step=NEXT_STEP
    )


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int = -1
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str = ""
    secondary_hash: str = ""
    size: int = 0
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Ras(msgspec.Struct):
    timeouts_count: int = 0


class _Document(msgspec.Struct):
    communicators: list[_Communicator]
    nccl_version: str = ""
    timestamp: str = ""
    ras: _Ras = msgspec.field(default_factory=_Ras)


def taken_ns(stamp: str) -> int:
    """When an answer was taken by its stamp, the wall clock read as UTC; 0 for what is none."""
    try:
        read = datetime.strptime(stamp[:19], STAMP).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return round(read.timestamp()) * 1_000_000_000


def read_json(body: bytes, path: str) -> RasAnswer:
    """The answer of a JSON document.

    Raises InputError naming the place in it.
    """
    if body.count(b"{") > MAX_TABLES:
        raise InputError("JSON of more parts than any answer has", path=path, next_step=NEXT_STEP)
    try:
        document = msgspec.json.decode(body, type=_Document)
    except UNREADABLE as error:
        raise InputError(
            f"not the JSON that NCCL's RAS writes: {error}", path=path, next_step=NEXT_STEP
        ) from error
    found = [_communicator(one, i, path) for i, one in enumerate(document.communicators)]
    n_members = sum(len(one.ranks) for one in found)
    if n_members > MAX_MEMBERS:
        raise InputError(f"{n_members} members: more than any job has", path=path)
    gone = _gone(found)
    return RasAnswer(
        form=RasForm.JSON,
        nccl_version=document.nccl_version,
        timestamp=document.timestamp,
        taken_ns=taken_ns(document.timestamp),
        communicators=tuple(found),
        gone=gone,
        n_gone={presence: len(processes) for presence, processes in gone.items()},
        n_timeouts=max(0, document.ras.timeouts_count),
        n_unread=sum(map(_n_unread, document.communicators)),
    )


def _communicator(one: _Communicator, index: int, path: str) -> RasCommunicator:
    place = f"$.communicators[{index}]"
    named = HASH.fullmatch(one.hash)
    if named is None:
        raise InputError(f"{place}.hash: no hexadecimal number: {one.hash[:40]!r}", path=path)
    present = {rank.rank: rank for rank in one.ranks if _is_rank(rank, one)}
    missing = {rank.rank: rank for rank in one.missing_ranks if _is_rank(rank, one)}
    ranks = [_present(rank) for rank in present.values()]
    ranks += [_missing(rank) for number, rank in missing.items() if number not in present]
    return RasCommunicator(
        comm_hash=int(named[1], 16),
        second_hash=one.secondary_hash,
        comm_size=_size(one),
        ranks=tuple(sorted(ranks, key=lambda rank: rank.comm_rank)),
        launches=tuple(launch_groups(present)),
    )


def _size(one: _Communicator) -> int:
    """Number of members, 0 for one that cannot be."""
    return one.size if 0 < one.size <= MAX_COMM_SIZE else 0


def _is_rank(rank: _Rank, one: _Communicator) -> bool:
    return 0 <= rank.rank < (_size(one) or MAX_COMM_SIZE)


def _n_unread(one: _Communicator) -> int:
    """Members whose number cannot be, such a size, and counts of unknown functions."""
    listed = (*one.ranks, *one.missing_ranks)
    unplaced = sum(not _is_rank(rank, one) for rank in listed) + (_size(one) != one.size)
    functions = {name for rank in one.ranks for name in rank.collective_counts}
    return unplaced + len(functions - OP_OF_FUNCTION.keys())


def _present(rank: _Rank) -> RasRank:
    return RasRank(
        comm_rank=rank.rank,
        presence=RasPresence.ANSWERED,
        process=RasProcess(host=_host(rank), pid=rank.pid),
        cuda_device=rank.cuda_dev,
        status=_status(rank.status),
        init_error=error_name(rank.status.init_state),
        async_error=error_name(rank.status.async_error),
    )


def _missing(rank: _Rank) -> RasRank:
    presence = RasPresence.LEFT
    if rank.status.considered_dead:
        presence = RasPresence.DEAD
    elif rank.status.unresponsive:
        presence = RasPresence.SILENT
    return RasRank(
        comm_rank=rank.rank,
        presence=presence,
        process=RasProcess(host=_host(rank), pid=rank.pid),
        cuda_device=rank.cuda_dev,
        status="NOCOMM" if presence is RasPresence.LEFT else "",
    )


def _host(rank: _Rank) -> str:
    return "" if rank.host == "unknown" else rank.host


def _status(status: _Status) -> str:
    if status.abort_flag:
        return "ABORT"
    if status.finalize_called or status.destroy_flag:
        return "FINALIZE"
    return "INIT" if status.init_state else "RUNNING"


def launch_groups(ranks: Mapping[int, _Rank]) -> Iterator[RasLaunches]:
    """Members grouped by how many ops of each function they had launched."""
    grouped: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, rank in ranks.items():
        for name, op in OP_OF_FUNCTION.items():
            if name in rank.collective_counts:
                grouped[op, rank.collective_counts[name]].append(number)
    ordered = sorted(grouped.items(), key=lambda item: (item[0][0], -len(item[1]), -item[0][1]))
    for (op, n_launched), members in ordered:
        yield RasLaunches(
            op=op, n_launched=n_launched, n_ranks=len(members), comm_ranks=tuple(sorted(members))
        )


def _gone(found: Iterable[RasCommunicator]) -> dict[RasPresence, tuple[RasProcess, ...]]:
    """Silent and dead processes, each once."""
    gone: dict[RasPresence, dict[RasProcess, None]] = {}
    for rank in (rank for one in found for rank in one.ranks):
        if rank.presence in {RasPresence.SILENT, RasPresence.DEAD} and rank.process.pid >= 0:
            gone.setdefault(rank.presence, {})[rank.process] = None
    return {presence: tuple(processes) for presence, processes in gone.items()}
