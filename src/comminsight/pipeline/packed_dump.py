"""Dumps on their way from one process to another: numbers in columns, all else once for its kind.

A dump of a few hundred entries has a dozen kinds of them, and the dumps of a job have the same
kinds and groups. Whoever unpacks them shares these, as a reader of all dumps would. Both processes
are on one machine, and a worker that needs no numpy starts in half the time.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec

from comminsight.format.flight_recorder import FlightCounters, FlightDump, FlightGroup
from comminsight.format.flight_recorder_entry import FlightEntry

N_NUMBERS = FlightEntry.__struct_fields__.index("group")  # the fields before are numbers
_ZEROS: tuple[Any, ...] = (0,) * N_NUMBERS
_ENCODER = msgspec.msgpack.Encoder()
_ENTRY = msgspec.msgpack.Decoder(FlightEntry)
_GROUP = msgspec.msgpack.Decoder(FlightGroup)


class PackedDump(msgspec.Struct, frozen=True, array_like=True):
    """A dump. Entry k is of kind ``kinds[k]`` (u4) and has row k of ``numbers`` (i8), both in the
    byte order of the machine."""

    version: str
    library_version: str
    counters: Mapping[int, FlightCounters]
    groups: tuple[bytes, ...]
    alike: tuple[bytes, ...]
    kinds: bytes
    numbers: bytes


def packed(dump: FlightDump) -> PackedDump:
    """The dump without what it has twice."""
    rows = [msgspec.structs.astuple(entry) for entry in dump.entries]
    known: dict[tuple[Any, ...], int] = {}
    kinds = [known.setdefault(row[N_NUMBERS:], len(known)) for row in rows]
    return PackedDump(
        version=dump.version,
        library_version=dump.library_version,
        counters=dump.counters,
        groups=tuple(map(_ENCODER.encode, dump.groups)),
        alike=tuple(_ENCODER.encode(FlightEntry(*_ZEROS, *kind)) for kind in known),
        kinds=array("I", kinds).tobytes(),
        numbers=array("q", chain.from_iterable(row[:N_NUMBERS] for row in rows)).tobytes(),
    )


class Unpacking:
    """Makes dumps again; those of one ``Unpacking`` share what they have in common."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, tuple[Any, ...]] = {}
        self._groups: dict[bytes, FlightGroup] = {}

    def dump(self, one: PackedDump) -> FlightDump:
        """The same dump that was packed."""
        kinds = [self._kind(data) for data in one.alike]
        numbers = [iter(array("q", one.numbers))] * N_NUMBERS  # a row takes one from each
        places = array("I", one.kinds)
        return FlightDump(
            version=one.version,
            library_version=one.library_version,
            counters=one.counters,
            groups=tuple(map(self._group, one.groups)),
            entries=tuple(
                FlightEntry(*row, *kinds[k]) for *row, k in zip(*numbers, places, strict=True)
            ),
        )

    def _kind(self, data: bytes) -> tuple[Any, ...]:
        if data not in self._kinds:
            self._kinds[data] = msgspec.structs.astuple(_ENTRY.decode(data))[N_NUMBERS:]
        return self._kinds[data]

    def _group(self, data: bytes) -> FlightGroup:
        if data not in self._groups:
            self._groups[data] = _GROUP.decode(data)
        return self._groups[data]
