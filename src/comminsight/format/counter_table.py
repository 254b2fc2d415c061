"""Counters over time from a table of text: one sample a line, with a header that names the columns.

``time_ns,host,device,counter,value[,unit]``: times are ns of the wall clock, values those that the
counter had. Whatever collects counters can write that.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass

from comminsight.errors import InputError
from comminsight.model.counters import CounterSeries

COLUMNS = ("time_ns", "host", "device", "counter", "value")
MAX_SAMPLES = 1 << 24
NEXT_STEP = "write the header time_ns,host,device,counter,value and one sample a line"
_TIME = re.compile(r"\d{1,19}", re.ASCII)
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?time_ns,host,device,counter,value(?:,unit)?\r?\n")


@dataclass(frozen=True, slots=True)
class CounterTable:
    """The series by host, device and counter, samples by their time; ``n_bad`` lines are none."""

    series: tuple[CounterSeries, ...]
    n_bad: int


def is_counter_table(head: bytes) -> bool:
    """True for a file that begins with the header."""
    return _HEAD.match(head) is not None


def parse_counter_table(text: str, *, path: str = "") -> CounterTable:
    """The samples in ``text``; raises InputError for another header, or where no line is one."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or tuple(lines[0].split(",")[: len(COLUMNS)]) != COLUMNS:
        raise InputError("begins with another header", path=path, next_step=NEXT_STEP)
    samples: dict[tuple[str, str, str, str], list[tuple[int, float]]] = defaultdict(list)
    n_bad = n_read = 0
    for line in lines[1:]:
        one = _sample(line.split(","))
        if one is None or n_read >= MAX_SAMPLES:
            n_bad += 1
        else:
            samples[one[0]].append(one[1])
            n_read += 1
    if not samples:
        raise InputError("holds no sample", path=path, next_step=NEXT_STEP)
    return CounterTable(tuple(_series(key, own) for key, own in samples.items()), n_bad)


def _sample(row: list[str]) -> tuple[tuple[str, str, str, str], tuple[int, float]] | None:
    if not len(COLUMNS) <= len(row) <= len(COLUMNS) + 1 or not _TIME.fullmatch(row[0]):
        return None
    try:
        value = float(row[4])
    except ValueError:
        return None
    is_usable = math.isfinite(value) and all(row[1:4])
    unit = row[5] if len(row) > len(COLUMNS) else ""
    return ((row[1], row[2], row[3], unit), (int(row[0]), value)) if is_usable else None


def _series(key: tuple[str, str, str, str], samples: list[tuple[int, float]]) -> CounterSeries:
    samples.sort(key=lambda sample: sample[0])
    times_ns, values = zip(*samples, strict=True)
    host, device, counter, unit = key
    return CounterSeries(
        host=host, device=device, counter=counter, unit=unit, times_ns=times_ns, values=values
    )
