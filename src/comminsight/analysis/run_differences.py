"""What differs between a run and another one: bandwidth, settings, versions, plans, CPU masks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.bandwidth import usable
from comminsight.analysis.log_ranks import short_host
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

SETTING_CODES = frozenset({LogCode.NCCL_ENV, LogCode.ENVIRONMENT})
# what is told, and where to: no way in which data moves
SILENT_SETTINGS = ("NCCL_DEBUG", "RCCL_DEBUG", "NCCL_PROFILER", "NCCL_RAS", "NCCL_CONF_FILE")


@dataclass(frozen=True, slots=True)
class OpSpeed:
    """Bandwidth of one op in both runs, by the largest size that both moved; ``usual_low_gbs`` is
    the lowest that the other run had."""

    op: int
    busbw_gbs: float
    usual_gbs: float
    usual_low_gbs: float

    @property
    def ratio(self) -> float:
        """Of this run to the other; 1 where it is within what the other run had too."""
        is_within = self.busbw_gbs >= self.usual_low_gbs
        return 1.0 if is_within else self.busbw_gbs / self.usual_gbs


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting with its values, "" where a run does not set it."""

    name: str
    value: str
    other: str


def op_speeds(rows: Sequence[BandwidthRow], others: Sequence[BandwidthRow]) -> list[OpSpeed]:
    """Each op that both runs moved in equal sizes over as many ranks and hosts; the worst where
    there are several such kinds of paths."""
    own, their = _by_kind(rows), _by_kind(others)
    largest: dict[tuple[int, int, int], int] = {}
    for op, n_ranks, n_hosts, size in own.keys() & their.keys():
        kind = op, n_ranks, n_hosts
        largest[kind] = max(size, largest.get(kind, size))
    found: dict[int, OpSpeed] = {}
    for kind, size in sorted(largest.items()):
        speed = _speed(kind[0], own[*kind, size], their[*kind, size])
        known = found.get(speed.op, speed)
        if speed.usual_gbs > 0:
            found[speed.op] = min(known, speed, key=lambda one: one.ratio)
    return list(found.values())


def _speed(op: int, rows: Sequence[BandwidthRow], others: Sequence[BandwidthRow]) -> OpSpeed:
    here, there = ([row.busbw_gbs for row in run] for run in (rows, others))
    low = min(row.low_gbs or row.busbw_gbs for row in others)
    return OpSpeed(op, float(np.median(here)), float(np.median(there)), low)


def spread(rows: Sequence[BandwidthRow]) -> tuple[float, float]:
    """The lowest and the highest bandwidth of rows of like ops, (0, 0) without any."""
    low = [row.low_gbs or row.busbw_gbs for row in rows]
    high = [row.high_gbs or row.busbw_gbs for row in rows]
    return (min(low), max(high)) if low else (0.0, 0.0)


def settings_that_differ(logs: Sequence[JobLog], others: Sequence[JobLog]) -> list[Difference]:
    """Settings of the library on which each run agrees with itself and not with the other. One that
    a run does not tell is unset only where the run tells what it does at all (level INFO)."""
    own, their = _settings(logs), _settings(others)
    names = own.keys() | their.keys()
    if not (_is_talkative(logs) and _is_talkative(others)):
        names = own.keys() & their.keys()
    found = []
    for name in sorted(names):
        here, there = own.get(name, {""}), their.get(name, {""})
        if len(here) == len(there) == 1 and here != there:
            found.append(Difference(name, next(iter(here)), next(iter(there))))
    return found


def _is_talkative(logs: Iterable[JobLog]) -> bool:
    return any(event.values.get("level") == "INFO" for event in _events(logs))


def versions(logs: Iterable[JobLog]) -> set[str]:
    """The versions of the library that the lines tell."""
    found = (e.values.get("version") for e in _events(logs) if e.code is LogCode.NCCL_VERSION)
    return {str(version) for version in found if version}


def plans(logs: Iterable[JobLog]) -> list[str]:
    """What was planned, each once: "16 channels, 20.0/20.0, NVL/PXB"."""
    found = {_plan(event) for event in _events(logs) if event.code is LogCode.NCCL_GRAPH}
    return sorted(found)


def masks(logs: Iterable[JobLog]) -> dict[tuple[str, int], str]:
    """The CPU mask of each GPU's threads, by host, where all lines on it agree."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for log in logs:
        for event in log.events:
            if event.code is LogCode.NCCL_AFFINITY:
                gpu = int(str(event.values.get("cuda_device", -1)))
                host = short_host(event.host or log.host)
                found[host, gpu].add(str(event.values.get("mask", "")))
    return {place: seen.pop() for place, seen in found.items() if len(seen) == 1}


def cores_of(mask: str) -> frozenset[int] | None:
    """The cores in a mask: ranges such as ``0-47,96``, or words of 32 bits in hexadecimal; None for
    text that is neither, and for one that could be both."""
    parts = mask.split(",")
    try:
        if "-" in mask:
            return frozenset(core for part in parts for core in _range(part))
        is_words = all(len(part) == 8 for part in parts[1:]) and len(parts[0]) <= 8
        bits = int("".join(parts), 16) if is_words and (len(parts) > 1 or len(mask) > 3) else None
    except ValueError:
        return None
    return None if bits is None else frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _by_kind(
    rows: Iterable[BandwidthRow],
) -> dict[tuple[int, int, int, int], list[BandwidthRow]]:
    found: dict[tuple[int, int, int, int], list[BandwidthRow]] = defaultdict(list)
    for row in usable(rows):
        found[row.op, row.n_members, len(row.hosts), row.size_bytes].append(row)
    return found


def _settings(logs: Iterable[JobLog]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for event in _events(logs):
        name = str(event.values.get("name", ""))
        if event.code in SETTING_CODES and not name.startswith(SILENT_SETTINGS):
            found[name].add(str(event.values.get("value", "")))
    return found


def _plan(event: LogEvent) -> str:
    values = event.values
    told = f"{values.get('n_channels', '?')} channels, {values.get('value', '?')}"
    return f"{told}, {values.get('kind', '?')}"


def _events(logs: Iterable[JobLog]) -> Iterator[LogEvent]:
    for log in logs:
        yield from log.events
