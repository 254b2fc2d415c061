"""Dumps of PyTorch's Flight Recorder, pickle or JSON, of every version: one process, one file.

A dump holds the last calls of one process on all its process groups, what it knows of these
groups, and three counters per group. It names neither its rank nor when it was written: that is
told by the file's name and by what the groups have in common (``pipeline``).

    torch  dump  what is in it
    2.2    –     a bare list of entries
    2.3    1.4   a table; groups by number; ``seq_id``
    2.4    2.1   groups by name; ``collective_seq_id`` and ``p2p_seq_id``; element types
    2.5    2.4   counters of each group; the JSON form
    2.8    2.9   gloo too
    2.9-   2.10
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.flight_recorder_entry import (
    BadEntryError,
    EntryReader,
    FlightEntry,
    entry_maker,
    plain_text,
)
from comminsight.format.pickle_layouts import Layouts
from comminsight.format.safe_pickle import MAX_BYTES, MAX_STEPS, is_pickle, load_plain

MAX_ENTRIES = 1 << 18
MAX_GROUPS = 1 << 13
MAX_RANKS = 1 << 17
MAX_LISTED = 1 << 22  # members, over all groups of a dump
MAX_JSON_PARTS = 1 << 21  # lists and tables, as many as that many entries have
NEXT_STEP = (
    "give the files that TORCH_FR_DUMP_TEMP_FILE (TORCH_NCCL_DEBUG_INFO_TEMP_FILE) named, one per "
    "rank, as PyTorch wrote them"
)
KNOWN_VERSIONS = frozenset({1, 2})  # before the dot: what is behind it only adds
_RANK = re.compile(r"\d{1,7}", re.ASCII)
_VERSION = re.compile(r"(\d{1,4})(?:\.\d{1,6})*", re.ASCII)
_MARKS = {  # those that begin like another one come first
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig",
}  # fmt: skip
_KEYS = (b"entries", b"pg_config", b"pg_status", b"profiling_name")


class FlightGroup(msgspec.Struct, frozen=True):
    """A process group as one rank knows it; ``members`` is () where the dump does not say.

    ``pg_id`` is the number of the group in this process alone, -1 where only the name is known.
    """

    name: str
    desc: str
    members: tuple[int, ...] = ()
    pg_id: int = -1


class FlightCounters(msgspec.Struct, frozen=True):
    """Last launch of a group that was enqueued, and that was completed; -1 for never. Launches of
    collectives and of P2P are numbered apart, and only the number of the last one is kept."""

    enqueued: int
    completed: int


class FlightDump(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one process left behind. ``counters`` is by the process's own number of the group."""

    version: str
    entries: tuple[FlightEntry, ...]
    groups: tuple[FlightGroup, ...] = ()
    counters: Mapping[int, FlightCounters] = {}
    library_version: str = ""

    @cached_property
    def newest_ns(self) -> int:
        """The newest stamp in it, wall time of its host; 0 without any."""
        return max([entry.created_ns for entry in self.entries], default=0)

    @cached_property
    def firsts(self) -> Mapping[tuple[int, str], FlightEntry]:
        """The first entry of each group, by the process's own number of it and its name."""
        found: dict[tuple[int, str], FlightEntry] = {}
        for entry in self.entries:
            found.setdefault((entry.pg_id, entry.group), entry)
        return found


def is_flight_recorder(data: bytes) -> bool:
    """Whether the bytes look like a dump: a pickle or JSON in which one of its keys stands."""
    if is_pickle(data):
        return any(key in data for key in _KEYS)
    data = in_utf8(data)
    is_table = data.lstrip()[:1] == b"{"
    return is_table and any(b'"%b"' % key in data for key in _KEYS)


def entry_layouts() -> Layouts:
    """What the dumps of one job have in common, so that those after the first are read faster."""
    return Layouts(entry_maker)


def parse_flight_recorder(
    data: bytes, *, path: str = "", layouts: Layouts | None = None
) -> FlightDump:
    """The dump in ``data``; raises InputError naming file and place when it is none.

    The dumps of one job are read faster with the same ``layouts``, see ``entry_layouts``.
    """
    document = _document(data, path, entry_layouts() if layouts is None else layouts)
    if isinstance(document, list):
        return FlightDump(version="", entries=_entries(document, path))
    if not isinstance(document, Mapping):
        raise _error("neither a table nor a list of entries", path)
    version = plain_text(document.get("version", ""))
    told = _VERSION.fullmatch(version)
    if told is None or int(told[1]) not in KNOWN_VERSIONS:
        raise _error(f"version {version[:20]!r} of the dump is not known", path)
    library = document.get("comm_lib_version", document.get("nccl_version", ""))
    return FlightDump(
        version=version,
        entries=_entries(document.get("entries") or [], path),
        groups=_groups(document.get("pg_config") or {}, path),
        counters=_counters(document.get("pg_status") or {}, path),
        library_version=plain_text(library, 80),
    )


def _document(data: bytes, path: str, layouts: Layouts) -> Any:
    if len(data) > MAX_BYTES:
        raise _error(f"larger than {MAX_BYTES >> 20} MiB", path)
    if is_pickle(data):
        return load_plain(data, path=path, next_step=NEXT_STEP, layouts=layouts)
    data = in_utf8(data)
    if data.count(b"[") + data.count(b"{") > MAX_JSON_PARTS or data.count(b",") > MAX_STEPS:
        raise _error("JSON of more parts than any dump has", path)
    try:
        return msgspec.json.decode(data)
    except UNREADABLE as error:
        raise _error(f"neither a pickle nor JSON: {error}", path) from error


def in_utf8(data: bytes) -> bytes:
    """Text that begins with a mark of its encoding, in UTF-8 without it; anything else as it is."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    return data if encoding is None else data.decode(encoding, "replace").encode()


def _entries(raw: Any, path: str) -> tuple[FlightEntry, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_ENTRIES:
        raise _error(f"entries is no list of at most {MAX_ENTRIES}", path)
    entries: list[FlightEntry] = []
    try:
        entries.extend(map(EntryReader().read, raw))
    except BadEntryError as error:
        raise _error(f"entries[{len(entries)}]: {error}", path) from error
    if len({entry.pg_id for entry in entries}) > MAX_GROUPS:
        raise _error(f"entries of more than {MAX_GROUPS} groups", path)
    return tuple(entries)


def _groups(raw: Any, path: str) -> tuple[FlightGroup, ...]:
    """By name: ``{name, desc, ranks}``; up to version 1 by number: the ranks alone."""
    if not isinstance(raw, Mapping) or len(raw) > MAX_GROUPS:
        raise _error(f"pg_config is no table of at most {MAX_GROUPS} groups", path)
    found = []
    n_left = MAX_LISTED
    for key, value in raw.items():
        place = f"pg_config[{plain_text(key, 40)!r}]"
        is_named = isinstance(value, Mapping)
        members = _members(value.get("ranks") if is_named else value, n_left, place, path)
        n_left -= len(members)
        if not is_named:
            found.append(FlightGroup("", "", members, _counter(key, place, path)))
            continue
        name, desc = plain_text(value.get("name", key)), plain_text(value.get("desc", ""))
        if name or members:  # gloo writes one group without a name
            found.append(FlightGroup(name, desc, members))
    return tuple(found)


def _members(raw: Any, n_left: int, place: str, path: str) -> tuple[int, ...]:
    """Global ranks, from a list or from its text ``[0, 1]``."""
    if isinstance(raw, str):
        members = _written_members(raw)
    elif isinstance(raw, list | tuple):
        if len(raw) <= n_left and not set(map(type, raw)) <= {int}:
            raise _error(f"{place}.ranks is no list of ranks", path)
        members = _checked(tuple(raw[: n_left + 1]))
    elif raw is None:
        members = ()
    else:
        raise _error(f"{place}.ranks is no list of ranks", path)
    if members is None:
        raise _error(f"{place}.ranks holds what is no rank, or one twice", path)
    if len(members) > n_left:
        raise _error(f"{place}.ranks: more than {MAX_LISTED} members in all groups", path)
    return members


@lru_cache(maxsize=64)
def _written_members(text: str) -> tuple[int, ...] | None:
    """The members that a text names: all dumps of a job name the same; None for what cannot be."""
    numbers = islice(_RANK.finditer(text), MAX_RANKS + 1)
    return _checked(tuple(int(number[0]) for number in numbers))


def _checked(members: tuple[int, ...]) -> tuple[int, ...] | None:
    are_ranks = not members or 0 <= min(members) <= max(members) < MAX_RANKS
    return members if are_ranks and len(set(members)) == len(members) else None


def _counters(raw: Any, path: str) -> dict[int, FlightCounters]:
    if not isinstance(raw, Mapping) or len(raw) > MAX_GROUPS:
        raise _error(f"pg_status is no table of at most {MAX_GROUPS} groups", path)
    found = {}
    for key, value in raw.items():
        place = f"pg_status[{plain_text(key, 40)!r}]"
        if not isinstance(value, Mapping):
            raise _error(f"{place} is no table", path)
        enqueued, completed = (
            _counter(value.get(f"last_{which}_collective", -1), place, path)
            for which in ("enqueued", "completed")
        )
        found[_counter(key, place, path)] = FlightCounters(enqueued, completed)
    return found


def _counter(raw: Any, place: str, path: str) -> int:
    """A number, as such or as text."""
    if isinstance(raw, str) and re.fullmatch(r"-?\d{1,18}", raw, re.ASCII):
        return int(raw)
    if type(raw) is not int or abs(raw) >= 1 << 62:
        raise _error(f"{place} holds what is no number", path)
    return raw


def _error(message: str, path: str) -> InputError:
    return InputError(message, path=path, next_step=NEXT_STEP)
