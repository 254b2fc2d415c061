"""Ascend's profiles: the files of one rank, put together to one trace.

Files belong together that lie in one folder. Of what they say twice, the most exact counts:
kernel_details.csv, then the database, then trace_view.json. communication.json alone has no
compute, so that what it would show as exposed may well be hidden.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.format.ascend import NEXT_STEP, AscendRank, rank_of
from comminsight.format.ascend_csv import (
    StepTraceTime,
    is_kernel_details,
    is_step_trace_time,
    read_kernel_details,
    read_step_trace_time,
)
from comminsight.format.ascend_db import is_ascend_db, read_ascend_db
from comminsight.format.ascend_json import (
    is_communication,
    is_communication_matrix,
    read_communication,
    read_communication_matrix,
)
from comminsight.format.ascend_trace import is_trace_view, read_trace_view
from comminsight.format.expanding import expanded_head
from comminsight.format.regular_file import open_regular, read_regular
from comminsight.format.sqlite_file import SqliteFile, is_sqlite
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.device_trace import CollectiveCall, DeviceTrace, TraceSlice
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message

HEAD_BYTES = 1 << 16
MAX_INFO_BYTES = 1 << 22
ONLY_COMMUNICATION = 3
_RANK_IN_NAME = re.compile(r"rank[_\-]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_Slices = tuple[list[TraceSlice], int]
_Reader = Callable[[BinaryIO, AscendRank], _Slices]


@dataclass(slots=True)
class AscendProfile:
    """What the files of one folder tell. ``own_times`` are the profiler's own sums, by step."""

    traces: tuple[DeviceTrace, ...] = ()  # one of each rank; several only of several databases
    bare: tuple[DeviceTrace, ...] = ()  # those with communication alone, among no others
    own_times: tuple[StepTraceTime, ...] = ()
    links: tuple[BandwidthRow, ...] = ()
    unread: list[UnreadFile] = field(default_factory=list)


def is_ascend(head: bytes) -> bool:
    """Whether a file that begins so is a text file of Ascend's profiler."""
    return (
        is_kernel_details(head)
        or is_step_trace_time(head)
        or is_communication(head)
        or is_communication_matrix(head)
        or is_trace_view(head)
    )


def read_ascend_profiles(paths: Iterable[Path]) -> list[AscendProfile]:
    """One for each folder that ``paths`` lie in, by its name. A file that does not read is named
    in its profile; the others are read all the same."""
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        by_folder[path.parent].append(path)
    return [_profile(folder, own) for folder, own in sorted(by_folder.items())]


def _profile(folder: Path, paths: Sequence[Path]) -> AscendProfile:
    rank = rank_beside(folder)
    profile = AscendProfile()
    found: list[tuple[int, DeviceTrace]] = []
    communication: list[TraceSlice] = []
    for path in sorted(paths):
        try:
            if (trace := _add(profile, path, rank, communication)) is not None:
                found.append(trace)
        except InputError:
            profile.unread.append(_unread(path, "unread.damaged", rank))
        except OSError:
            profile.unread.append(_unread(path, "unread.unreadable", rank))
    best: dict[int, tuple[int, DeviceTrace]] = {}
    for place, read in sorted(found, key=lambda one: one[0]):
        best.setdefault(read.global_rank, (place, with_groups(read, communication)))
    profile.traces = tuple(one for place, one in best.values() if place < ONLY_COMMUNICATION)
    profile.bare = tuple(one for place, one in best.values() if place == ONLY_COMMUNICATION)
    return profile


def _unread(path: Path, reason: str, rank: AscendRank) -> UnreadFile:
    return UnreadFile(file=str(path), reason=Message(reason), rank=rank.global_rank)


def _add(
    profile: AscendProfile, path: Path, rank: AscendRank, communication: list[TraceSlice]
) -> tuple[int, DeviceTrace] | None:
    """Adds what one file tells; a trace comes back with its place among the others."""
    head = _head(path)
    if is_sqlite(head):
        with SqliteFile(str(path), next_step=NEXT_STEP) as base:
            if not is_ascend_db(base.tables):
                raise InputError(
                    "has no tables of Ascend's profiler", path=str(path), next_step=NEXT_STEP
                )
            return 1, read_ascend_db(base, rank, path=str(path))
    with _opened(path) as stream:
        if is_step_trace_time(head):
            profile.own_times = read_step_trace_time(stream, path=str(path))
        elif is_communication_matrix(head):
            profile.links = read_communication_matrix(stream, rank, path=str(path))
        elif is_kernel_details(head):
            return 0, _trace(read_kernel_details(stream, rank, path=str(path)), rank, path)
        elif is_trace_view(head):
            return 2, _trace(read_trace_view(stream, rank, path=str(path)), rank, path)
        else:
            slices, n_unusable = read_communication(stream, rank, path=str(path))
            communication += slices
            return ONLY_COMMUNICATION, _trace((slices, n_unusable), rank, path)
    return None


def _trace(read: _Slices, rank: AscendRank, path: Path) -> DeviceTrace:
    slices, n_unusable = read
    return DeviceTrace(
        file=str(path), slices=tuple(sorted(slices, key=_by_time)), global_rank=rank.global_rank,
        world_size=rank.world_size, groups=tuple(rank.groups.values()), n_unusable=n_unusable,
    )  # fmt: skip


def with_groups(trace: DeviceTrace, communication: Iterable[TraceSlice]) -> DeviceTrace:
    """The trace, with the groups of its communication ops where only communication.json has them.
    An op is the same by its name, which is unique within one profile."""
    calls: dict[str, CollectiveCall] = {
        one.name: one.call for one in communication if one.call is not None
    }
    slices = tuple(
        replace(one, call=replace(calls[one.name], size_bytes=one.call.size_bytes))
        if one.call is not None and not one.call.members and one.name in calls
        else one
        for one in trace.slices
    )
    return replace(trace, slices=slices)


def rank_beside(folder: Path) -> AscendRank:
    """Whose profile lies in ``folder``: by profiler_info and profiler_metadata there or one above,
    else by the names of these folders."""
    info: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for place in (folder, folder.parent):
        info = info or _first(place.glob("profiler_info*.json"))
        metadata = metadata or _first(place.glob("profiler_metadata*.json"))
    rank = rank_of(info, metadata)
    if rank.global_rank >= 0:
        return rank
    for name in (folder.name, folder.parent.name):
        if found := _RANK_IN_NAME.search(name):
            return replace(rank, global_rank=int(found[1]))
    return rank


def _first(paths: Iterable[Path]) -> dict[str, Any]:
    """The first document that reads; {} for none, and where the folder is not listed."""
    try:
        listed = sorted(paths)[:2]
    except OSError:
        return {}
    for path in listed:
        try:
            return msgspec.json.decode(
                read_regular(path, MAX_INFO_BYTES) or b"", type=dict[str, Any]
            )
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
    return {}


def _opened(path: Path) -> BinaryIO:
    opened = open_regular(path)
    if opened is None:
        raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
    return opened


def _head(path: Path) -> bytes:
    with _opened(path) as stream:
        return expanded_head(stream.read(HEAD_BYTES))


def _by_time(one: TraceSlice) -> tuple[int, int]:
    return one.start_ns, one.end_ns
