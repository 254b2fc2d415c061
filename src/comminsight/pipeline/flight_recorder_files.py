"""Which dump is of which rank: by the name of its file, held against what the dump itself says.

A dump does not name its rank. Its groups all hold it, so their common members are the ranks that it
can be; the name of the file decides among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from comminsight.errors import InputError
from comminsight.format.expanding import expanded_bytes
from comminsight.format.flight_recorder import (
    MAX_RANKS,
    NEXT_STEP,
    FlightDump,
    is_flight_recorder,
    parse_flight_recorder,
)
from comminsight.format.pickle_rows import Layouts
from comminsight.format.safe_pickle import MAX_BYTES
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message
from comminsight.pipeline.regular_file import read_regular

_AFTER_RANK = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{1,7}(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class RankDump:
    """One rank's dump. ``written_ns`` is when its file was last written, wall time; 0 where the
    file is older than what is in it, so that its time says nothing."""

    global_rank: int
    dump: FlightDump
    source: str
    written_ns: int = 0


class ReadDumps(NamedTuple):
    """The dumps by rank, the names of files in given folders that are none, and the dumps that
    tell nothing."""

    dumps: list[RankDump]
    others: list[str]
    unread: list[UnreadFile]


class _BadDumpError(Exception):
    """A dump tells nothing; ``error`` says so to whoever gave nothing else."""

    def __init__(self, reason: str, error: InputError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


def read_dumps(paths: Iterable[Path]) -> ReadDumps:
    """The dumps in ``paths``, files or folders of them.

    One that does not read, of which nobody can tell the rank, or that says another thing than a
    second dump of its rank, tells nothing of its rank. Raises InputError where no dump is left.
    """
    read = _Reading()
    for path, is_given in _files(paths):
        read.take(path, is_given=is_given)
    if not read.found:
        named = ", ".join(map(str, paths)) if isinstance(paths, Sequence) else ""
        nothing = InputError("no Flight Recorder dump in it", path=named, next_step=NEXT_STEP)
        raise next(iter(read.bad.values())).error if read.bad else nothing
    dumps = [read.found[rank] for rank in sorted(read.found)]
    unread = [_unread(path, bad, dumps) for path, bad in read.bad.items()]
    return ReadDumps(dumps, read.others, unread)


class _Reading:
    """What was found so far."""

    def __init__(self) -> None:
        self.found: dict[int, RankDump] = {}
        self.others: list[str] = []
        self.bad: dict[Path, _BadDumpError] = {}
        self._disagreeing: set[int] = set()
        self._layouts = Layouts()

    def take(self, path: Path, *, is_given: bool) -> None:
        """Reads one file."""
        try:
            data = _read(path)
            if not is_given and not is_flight_recorder(data):
                self.others.append(path.name)
                return
            self._add(path, _dump(path, data, self._layouts))
        except _BadDumpError as bad:
            self.bad[path] = bad

    def _add(self, path: Path, dump: FlightDump) -> None:
        one = RankDump(rank_of(path, dump), dump, str(path), _written_ns(path, dump))
        known = self.found.get(one.global_rank)
        if one.global_rank in self._disagreeing:
            raise _BadDumpError("unread.disagrees", _disagreement(one, one))
        if known is None or _outline(known.dump) == _outline(dump):
            self.found[one.global_rank] = one if known is None else _better(known, one)
            return
        bad = _BadDumpError("unread.disagrees", _disagreement(known, one))
        self._disagreeing.add(one.global_rank)
        del self.found[one.global_rank]
        self.bad[Path(known.source)] = bad
        raise bad


def _dump(path: Path, data: bytes, layouts: Layouts) -> FlightDump:
    try:
        return parse_flight_recorder(data, path=str(path), layouts=layouts)
    except InputError as error:
        reason = "unread.damaged" if is_flight_recorder(data) else "unread.unknown_form"
        raise _BadDumpError(reason, error) from error


def _unread(path: Path, bad: _BadDumpError, dumps: Sequence[RankDump]) -> UnreadFile:
    rank = rank_by_name(path.name, (Path(one.source).name for one in dumps))
    return UnreadFile(file=str(path), reason=Message(bad.reason), rank=rank)


def rank_by_name(name: str, others: Iterable[str]) -> int:
    """The rank of a dump that its name alone can tell: what follows the word, or the number in
    which it differs from dumps of the same naming; -1 where neither is there."""
    numbers = _AFTER_RANK.findall(name)
    if not numbers:
        form = _NUMBER.sub("#", name)
        is_like = any(_NUMBER.sub("#", other) == form for other in others)
        numbers = _NUMBER.findall(name) if is_like and form.count("#") == 1 else []
    return int(numbers[0]) if numbers and int(numbers[0]) < MAX_RANKS else -1


def rank_of(path: Path, dump: FlightDump) -> int:
    """The rank the dump is of; raises a bad dump where neither name nor content tells it."""
    possible = possible_ranks(dump)
    for number in numbers_in(path.name):
        if number < MAX_RANKS if possible is None else number in possible:
            return number
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    told = "neither its name nor its groups tell" if possible is None else "its groups leave open"
    error = InputError(
        f"{told} which rank it is of", path=str(path),
        next_step="name the file so that it ends with the rank, as PyTorch does: dump_rank_3",
    )  # fmt: skip
    raise _BadDumpError("unread.no_rank", error)


def possible_ranks(dump: FlightDump) -> frozenset[int] | None:
    """Ranks that are in all groups of the dump, at the places its P2P calls give; None where the
    dump does not name the members of any group."""
    members = {group.name or group.pg_id: group.members for group in dump.groups if group.members}
    sets = [frozenset(ranks) for ranks in members.values()]
    for entry in dump.entries:
        ranks = members.get(entry.group or entry.pg_id, ())
        if 0 <= entry.place < len(ranks):
            sets.append(frozenset({ranks[entry.place]}))
            break
    common = frozenset.intersection(*sets) if sets else frozenset()
    return common or None


def numbers_in(name: str) -> list[int]:
    """What may be the rank in the name of a file: what follows the word, then from the end."""
    after = [int(m) for m in _AFTER_RANK.findall(name)]
    return after + [int(m) for m in reversed(_NUMBER.findall(name))]


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """(file, was given by name); of a folder the files right in it."""
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except OSError as error:
            raise _unreadable(path, error) from error
        if inside is None:
            yield path, True
        else:
            yield from ((one, False) for one in inside if _is_plain(one))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _read(path: Path) -> bytes:
    """What the file holds, expanded; raises InputError for what is no file, given by name."""
    try:
        data = read_regular(path, MAX_BYTES + 1)
    except OSError as error:
        raise _BadDumpError("unread.unreadable", _unreadable(path, error)) from error
    if data is None:
        no_file = InputError("is no file", path=str(path), next_step=NEXT_STEP)
        raise _BadDumpError("unread.unreadable", no_file)
    try:
        return expanded_bytes(data, max_bytes=MAX_BYTES, path=str(path), next_step=NEXT_STEP)
    except InputError as error:
        raise _BadDumpError("unread.damaged", error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot be read: {error.strerror}", path=str(path), next_step=NEXT_STEP)


def _written_ns(path: Path, dump: FlightDump) -> int:
    try:
        written_ns = path.stat().st_mtime_ns
    except OSError:  # it has vanished since it was read
        return 0
    return written_ns if dump.newest_ns and written_ns >= dump.newest_ns else 0


def _better(known: RankDump, one: RankDump) -> RankDump:
    """Of two forms of one dump that which has stack frames."""
    has_frames = any(entry.frames for entry in one.dump.entries)
    return one if has_frames else known


def _disagreement(known: RankDump, one: RankDump) -> InputError:
    return InputError(
        f"two dumps of rank {one.global_rank} that differ: {known.source}, {one.source}",
        next_step="give the dumps of one attempt alone, one file per rank",
    )


def _outline(dump: FlightDump) -> list[tuple[int, int]]:
    return [(entry.record_id, entry.created_ns) for entry in dump.entries]
