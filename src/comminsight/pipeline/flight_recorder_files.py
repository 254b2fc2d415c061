"""Which dump is of which rank: by the name of its file, held against what the dump itself says.

A dump does not name its rank. Its groups all hold it, so their common members are the ranks that it
can be; the name of the file decides among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from comminsight.errors import InputError
from comminsight.format.flight_recorder import (
    NEXT_STEP,
    FlightDump,
    is_flight_recorder,
    parse_flight_recorder,
)
from comminsight.format.pickle_rows import Layouts
from comminsight.format.safe_pickle import MAX_BYTES

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


def read_dumps(paths: Iterable[Path]) -> tuple[list[RankDump], list[str]]:
    """The dumps by rank, and the names of files in given folders that are none.

    Raises InputError for a file given by name that is none, for one whose rank cannot be told, and
    for two of one rank.
    """
    found: dict[int, RankDump] = {}
    others = []
    layouts = Layouts()
    for path, is_given in _files(paths):
        data = _read(path)
        if not is_given and not is_flight_recorder(data):
            others.append(path.name)
            continue
        dump = parse_flight_recorder(data, path=str(path), layouts=layouts)
        one = RankDump(rank_of(path, dump), dump, str(path), _written_ns(path, dump))
        known = found.get(one.global_rank)
        found[one.global_rank] = one if known is None else _better(known, one)
    if not found:
        named = ", ".join(map(str, paths)) if isinstance(paths, Sequence) else ""
        raise InputError("no Flight Recorder dump in it", path=named, next_step=NEXT_STEP)
    return [found[rank] for rank in sorted(found)], others


def rank_of(path: Path, dump: FlightDump) -> int:
    """The global rank; raises InputError where neither name nor content tells it."""
    possible = possible_ranks(dump)
    for number in numbers_in(path.name):
        if possible is None or number in possible:
            return number
    if possible is not None and len(possible) == 1:
        return next(iter(possible))
    told = "neither its name nor its groups tell" if possible is None else "its groups leave open"
    raise InputError(
        f"{told} which rank it is of", path=str(path),
        next_step="name the file so that it ends with the rank, as PyTorch does: dump_rank_3",
    )  # fmt: skip


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
        if path.is_dir():
            yield from ((one, False) for one in sorted(path.iterdir()) if _is_plain(one))
        else:
            yield path, True


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise InputError(why, path=str(path), next_step=NEXT_STEP) from error


def _written_ns(path: Path, dump: FlightDump) -> int:
    written_ns = path.stat().st_mtime_ns
    return written_ns if dump.newest_ns and written_ns >= dump.newest_ns else 0


def _better(known: RankDump, one: RankDump) -> RankDump:
    """Of two forms of one dump that which has stack frames."""
    first, second = (_outline(dump.dump) for dump in (known, one))
    if first != second:
        raise InputError(
            f"two dumps of rank {one.global_rank} that differ: {known.source}, {one.source}",
            next_step="give the dumps of one attempt alone, one file per rank",
        )
    has_frames = any(entry.frames for entry in one.dump.entries)
    return one if has_frames else known


def _outline(dump: FlightDump) -> list[tuple[int, int]]:
    return [(entry.record_id, entry.created_ns) for entry in dump.entries]
