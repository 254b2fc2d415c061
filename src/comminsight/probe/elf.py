"""What a shared library needs of a machine, from its ELF header and version needs alone.

Only 64-bit little-endian files are read in depth; others are told by their class. Source: the
System V ABI, chapters 4 and 5, and the symbol versioning part of the LSB.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from comminsight.errors import FormatError

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine: name as uname has it
PT_LOAD, PT_DYNAMIC = 1, 2
DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 5, 0x6FFFFFFE, 0x6FFFFFFF
MAX_ENTRIES = 256
MAX_NAME_BYTES = 256
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ElfFacts:
    """``machine`` as uname names it, "" for another; ``glibc`` is the newest version needed."""

    machine: str
    glibc: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Load:
    offset: int
    address: int
    n_bytes: int


def read_elf(data: bytes, path: str = "") -> ElfFacts:
    """The facts of a library's bytes.

    Raises FormatError when they are no ELF file, or are damaged.
    """
    if data[:4] != b"\x7fELF":
        raise FormatError("is no ELF file", path=path, next_step="reinstall comminsight")
    if data[4:6] != b"\x02\x01":
        return ElfFacts("")  # 32-bit or big-endian: no machine that NCCL runs on
    try:
        machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0], "")
        return ElfFacts(machine, _newest_glibc(data))
    except (struct.error, IndexError, OverflowError) as error:
        raise FormatError(
            "is a damaged ELF file", path=path, next_step="reinstall comminsight"
        ) from error


def _newest_glibc(data: bytes) -> tuple[int, int]:
    loads, dynamic = _segments(data)
    tags = dict(_dynamic(data, dynamic))
    if DT_VERNEED not in tags or DT_STRTAB not in tags:
        return (0, 0)
    names = _version_names(
        data,
        _file_offset(loads, tags[DT_VERNEED]),
        min(tags.get(DT_VERNEEDNUM, 0), MAX_ENTRIES),
        _file_offset(loads, tags[DT_STRTAB]),
    )
    found = [match for name in names if (match := GLIBC.fullmatch(name))]
    return max(((int(m[1]), int(m[2])) for m in found), default=(0, 0))


def _segments(data: bytes) -> tuple[list[_Load], _Load]:
    (table,) = struct.unpack_from("<Q", data, 32)
    entry_bytes, n_entries = struct.unpack_from("<HH", data, 54)
    loads, dynamic = [], _Load(0, 0, 0)
    for number in range(min(n_entries, MAX_ENTRIES)):
        kind, _, offset, address, _, n_bytes = struct.unpack_from(
            "<IIQQQQ", data, table + number * entry_bytes
        )
        if kind == PT_LOAD:
            loads.append(_Load(offset, address, n_bytes))
        if kind == PT_DYNAMIC:
            dynamic = _Load(offset, address, n_bytes)
    return loads, dynamic


def _dynamic(data: bytes, segment: _Load) -> Iterator[tuple[int, int]]:
    for number in range(min(segment.n_bytes // 16, MAX_ENTRIES)):
        yield struct.unpack_from("<QQ", data, segment.offset + number * 16)


def _file_offset(loads: list[_Load], address: int) -> int:
    for load in loads:
        if load.address <= address < load.address + load.n_bytes:
            return address - load.address + load.offset
    raise IndexError(address)


def _version_names(data: bytes, need: int, n_needs: int, strings: int) -> Iterator[str]:
    """Names of all versions that the chain of needs lists; every step goes forward or ends."""
    for _ in range(n_needs):
        _, n_versions, _, first, following = struct.unpack_from("<HHIII", data, need)
        version = need + first
        for _ in range(min(n_versions, MAX_ENTRIES)):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, version)
            begin = strings + name
            yield data[begin : begin + MAX_NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")
            version += step
        need += following
