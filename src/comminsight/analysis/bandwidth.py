"""Bus bandwidth of like ops: measured from records, and held against that of their peers.

A path is a set of ranks that one op joins (a communicator or a pair). It is slow where its bus
bandwidth (``bus_factor``: definitions of nccl-tests) lies below that of its peers by more than
their own spread; peers are other paths of the same op, size, number of ranks and of hosts. With
fewer than three peers nothing is said, and where most paths are slow, they are the usual.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from comminsight.model.bandwidth import BandwidthRow

MIN_PEERS = 3
MIN_DROP = 0.2  # of the usual bandwidth
CLEAR_DROP = 0.1  # a path within this of the usual one is certainly not slow
N_DEVIATIONS = 4.0
MAD_TO_SIGMA = 1.4826  # of a normal distribution
SLOWEST_GBS, FASTEST_GBS = 1e-9, 1e9  # a byte in a second, and more than any machine moves
DIP_RATIO = 0.25  # of the bandwidth on both sides of it

_Name = TypeVar("_Name", str, int)
Path = tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]  # ranks, hosts, devices


@dataclass(frozen=True, slots=True)
class ComparedPaths:
    """Slow paths, paths that are certainly not, the medians of both in GB/s, and paths that may be
    either."""

    slow: tuple[BandwidthRow, ...]
    normal: tuple[BandwidthRow, ...]
    busbw_gbs: float
    usual_gbs: float
    unclear: tuple[BandwidthRow, ...] = ()


def path_of(row: BandwidthRow) -> Path:
    """What the row's ops join, in whatever order it is named."""
    return tuple(sorted(row.ranks)), tuple(sorted(row.hosts)), tuple(sorted(row.devices))


def usable(rows: Iterable[BandwidthRow]) -> list[BandwidthRow]:
    """The rows with a bandwidth that can be: a test that failed may be told as 0."""
    return [row for row in rows if SLOWEST_GBS <= row.busbw_gbs <= FASTEST_GBS]


def compare_paths(rows: Iterable[BandwidthRow]) -> ComparedPaths:
    """Each path against its peers, by the largest size that enough of them moved: small ones are
    bound by latency. A path that is slow in one kind of op and normal in another is neither."""
    slow: dict[Path, BandwidthRow] = {}
    normal: dict[Path, BandwidthRow] = {}
    unclear: dict[Path, BandwidthRow] = {}
    pairs: list[tuple[float, float]] = []
    for population in _populations(rows):
        values = np.array([row.busbw_gbs for row in population])
        usual = float(np.median(values))
        spread = MAD_TO_SIGMA * float(np.median(np.abs(values - usual)))
        limit = usual - max(MIN_DROP * usual, N_DEVIATIONS * spread)
        for row in population:
            if row.busbw_gbs < limit:
                slow[path_of(row)] = row
                pairs.append((row.busbw_gbs, usual))
            elif row.busbw_gbs >= usual * (1 - CLEAR_DROP):
                normal[path_of(row)] = row
            else:
                unclear[path_of(row)] = row
    both = slow.keys() & normal.keys()
    unclear |= {path: slow[path] for path in both}
    found, usual_gbs = np.median(pairs, axis=0).tolist() if pairs else (0.0, 0.0)
    return ComparedPaths(
        tuple(row for path, row in slow.items() if path not in both),
        tuple(row for path, row in normal.items() if path not in both),
        found,
        usual_gbs,
        tuple(unclear.values()),
    )


def common_place(slow: Sequence[BandwidthRow], normal: Sequence[BandwidthRow]) -> set[str]:
    """What all of ``slow`` have and none of ``normal``: devices where every row names them, else
    hosts. Empty where there is no such thing, or nothing to tell them by."""
    for names in (_devices, _hosts):
        if all(names(row) for row in (*slow, *normal)):
            found = _common([names(row) for row in slow], [names(row) for row in normal])
            if found:
                return found
    return set()


def common_ranks(slow: Sequence[BandwidthRow], normal: Sequence[BandwidthRow]) -> set[int]:
    """The ranks that all of ``slow`` have and none of ``normal``."""
    return _common([set(row.ranks) for row in slow], [set(row.ranks) for row in normal])


def size_dips(rows: Iterable[BandwidthRow]) -> list[tuple[list[BandwidthRow], float]]:
    """Sizes at which a path collapses although smaller and larger ones run well: the rows and the
    lower of the bandwidths on both sides. A step that stays is a change of protocol, no dip."""
    curves: dict[tuple[object, ...], list[BandwidthRow]] = defaultdict(list)
    for row in usable(rows):
        curves[row.run, row.op, path_of(row)].append(row)
    found = []
    for curve in curves.values():
        by_size: dict[int, list[BandwidthRow]] = defaultdict(list)
        for row in curve:
            by_size[row.size_bytes].append(row)
        ordered = [_middle(own) for _, own in sorted(by_size.items())]
        values = [row.busbw_gbs for row in ordered]
        dip, sides = [], []
        for i, row in enumerate(ordered):
            side = min(max(values[:i], default=0.0), max(values[i + 1 :], default=0.0))
            if row.busbw_gbs < DIP_RATIO * side:
                dip.append(row)
                sides.append(side)
        if dip:
            found.append((dip, min(sides)))
    return found


def _populations(rows: Iterable[BandwidthRow]) -> list[list[BandwidthRow]]:
    """Rows of like paths, one per path (the median one over its windows), of one size each."""
    kinds: dict[tuple[object, ...], dict[int, dict[Path, list[BandwidthRow]]]] = {}
    for row in usable(rows):
        kind = (
            row.run, row.op, row.n_members, len(row.hosts), len(row.devices), row.algorithm,
            row.protocol, row.transport, row.chunk_bytes,
        )  # fmt: skip
        sizes = kinds.setdefault(kind, defaultdict(lambda: defaultdict(list)))
        sizes[row.size_bytes][path_of(row)].append(row)
    found = []
    for sizes in kinds.values():
        enough = [size for size, paths in sizes.items() if len(paths) > MIN_PEERS]
        if enough:
            found.append([_middle(rows) for rows in sizes[max(enough)].values()])
    return found


def _middle(rows: Sequence[BandwidthRow]) -> BandwidthRow:
    return sorted(rows, key=lambda row: row.busbw_gbs)[(len(rows) - 1) // 2]


def _devices(row: BandwidthRow) -> set[str]:
    return set(row.devices)


def _hosts(row: BandwidthRow) -> set[str]:
    return set(row.hosts)


def _common(inside: Sequence[set[_Name]], outside: Sequence[set[_Name]]) -> set[_Name]:
    return set.intersection(*inside) - set().union(*outside) if inside else set()
