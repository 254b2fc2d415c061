"""Which dump is of which rank: by the name of its file, held against what the dump itself says.

A dump does not name its rank. Its groups all hold it, so their common members are the ranks that it
can be; the name of the file decides among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from comminsight.errors import InputError
from comminsight.format.flight_recorder import (
    MAX_RANKS,
    NEXT_STEP,
    FlightDump,
    entry_layouts,
)
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message
from comminsight.pipeline.flight_recorder_attempts import AFTER_RANK, NUMBER, settled
from comminsight.pipeline.flight_recorder_file import (
    BadDumpError,
    plain_dump,
    read_dump,
    unreadable,
)
from comminsight.pipeline.packed_dump import PackedDump, Unpacking
from comminsight.pipeline.reading_pool import ReadingPool

DUMP_WORKERS = ReadingPool("comminsight.pipeline.dump_worker", PackedDump)


@dataclass(frozen=True, slots=True)
class RankDump:
    """One rank's dump. ``written_ns`` is when its file was last written, wall time; 0 where the
    file is older than what is in it, so that its time says nothing."""

    global_rank: int
    dump: FlightDump
    source: str
    written_ns: int = 0

    @property
    def newest_ns(self) -> int:
        """When its newest call was made; 0 where it has none."""
        return self.dump.newest_ns


class ReadDumps(NamedTuple):
    """The dumps by rank, the names of files in given folders that are none, and the dumps that
    tell nothing."""

    dumps: list[RankDump]
    others: list[str]
    unread: list[UnreadFile]


def read_dumps(paths: Iterable[Path]) -> ReadDumps:
    """The dumps in ``paths``, files or folders of them.

    One that does not read, of which nobody can tell the rank, or that says another thing than a
    second dump of its rank, tells nothing of its rank. Raises InputError where no dump is left.
    """
    read = _Reading()
    files = list(_files(paths))
    read.begin([path for path, _ in files])
    for path, is_given in files:
        read.take(path, is_given=is_given)
    chosen = settled(read.dumps, _is_same, _better)
    bad = read.bad | {Path(source): _disagreement(source) for source in chosen.disagreeing}
    bad |= {Path(source): _other_moment(source) for source in chosen.earlier}
    if not chosen.found:
        named = ", ".join(map(str, paths)) if isinstance(paths, Sequence) else ""
        nothing = InputError("no Flight Recorder dump in it", path=named, next_step=NEXT_STEP)
        raise next(iter(bad.values())).error if bad else nothing
    dumps = [chosen.found[rank] for rank in sorted(chosen.found)]
    return ReadDumps(dumps, read.others, [_unread(path, one, dumps) for path, one in bad.items()])


class _Reading:
    """What was read so far."""

    def __init__(self) -> None:
        self.dumps: list[RankDump] = []
        self.others: list[str] = []
        self.bad: dict[Path, BadDumpError] = {}
        self._layouts = entry_layouts()
        self._early: dict[Path, FlightDump] = {}

    def begin(self, paths: Sequence[Path]) -> None:
        """Reads what several processes read faster than one; whatever they leave is read later."""
        here = partial(plain_dump, layouts=self._layouts)
        self._early = DUMP_WORKERS.read(paths, here, Unpacking().dump)

    def take(self, path: Path, *, is_given: bool) -> None:
        """Reads one file."""
        try:
            early = self._early.pop(path, None)
            dump = early or read_dump(path, self._layouts, is_given=is_given)
            if dump is None:
                self.others.append(path.name)
                return
            one = RankDump(rank_of(path, dump), dump, str(path), _written_ns(path, dump))
            self.dumps.append(one)
        except BadDumpError as bad:
            self.bad[path] = bad


def _unread(path: Path, bad: BadDumpError, dumps: Sequence[RankDump]) -> UnreadFile:
    rank = rank_by_name(path.name, (Path(one.source).name for one in dumps))
    return UnreadFile(file=str(path), reason=Message(bad.reason), rank=rank)


def rank_by_name(name: str, others: Iterable[str]) -> int:
    """The rank of a dump that its name alone can tell: what follows the word, or the number in
    which it differs from dumps of the same naming; -1 where neither is there."""
    numbers = AFTER_RANK.findall(name)
    if not numbers:
        form = NUMBER.sub("#", name)
        is_like = any(NUMBER.sub("#", other) == form for other in others)
        numbers = NUMBER.findall(name) if is_like and form.count("#") == 1 else []
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
    raise BadDumpError("unread.no_rank", error)


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
    after = [int(m) for m in AFTER_RANK.findall(name)]
    return after + [int(m) for m in reversed(NUMBER.findall(name))]


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """(file, was given by name); of a folder the files right in it."""
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except OSError as error:
            raise unreadable(path, error) from error
        if inside is None:
            yield path, True
        else:
            yield from ((one, False) for one in inside if _is_plain(one))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


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


def _is_same(known: RankDump, one: RankDump) -> bool:
    return _outline(known.dump) == _outline(one.dump)


def _disagreement(source: str) -> BadDumpError:
    error = InputError(
        "another dump of its rank and moment differs", path=source,
        next_step="give the dumps of one attempt alone, one file per rank",
    )  # fmt: skip
    return BadDumpError("unread.disagrees", error)


def _other_moment(source: str) -> BadDumpError:
    error = InputError("is of an earlier moment or attempt", path=source, next_step=NEXT_STEP)
    return BadDumpError("unread.other_moment", error)


def _outline(dump: FlightDump) -> list[tuple[int, int]]:
    return [(entry.record_id, entry.created_ns) for entry in dump.entries]
