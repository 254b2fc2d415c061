"""What an op of a training step waits for on its own rank, where compute and communication are
both recorded: the edges of the step's graph, by what the ops are and not by when they ran.

- compute ops run one after another;
- a send waits for the compute that made what it sends, and for the send before it of its direction;
- a receive is posted when the compute before the one that it feeds is over; that one waits for it;
- all other ops of a rank run in the order seen: those before its first compute hold it up, those
  after its last compute wait for it and for each other.

The nth send or receive of a direction belongs to the nth compute of that direction, a first or
last stage has none. What else was waited for (another thread, data, an op that was not recorded)
is in none of these edges and shows as a gap before an op.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from itertools import pairwise

import numpy as np

MAX_AFTER = 4


class RowKind(IntEnum):
    """What an op of a step does. FORWARD and BACKWARD tell the direction of compute and P2P."""

    OTHER = 0
    COMPUTE_FORWARD = 1
    COMPUTE_BACKWARD = 2
    SEND_FORWARD = 3
    SEND_BACKWARD = 4
    RECV_FORWARD = 5
    RECV_BACKWARD = 6


_COMPUTE = (RowKind.COMPUTE_FORWARD, RowKind.COMPUTE_BACKWARD)
_SENDS = ((RowKind.SEND_FORWARD, _COMPUTE[0]), (RowKind.SEND_BACKWARD, _COMPUTE[1]))
_RECVS = ((RowKind.RECV_FORWARD, _COMPUTE[0]), (RowKind.RECV_BACKWARD, _COMPUTE[1]))


def step_edges(rank: np.ndarray, kind: np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """``(n_rows, MAX_AFTER)``: rows whose end each row of one step waits for, ``n_rows`` for none.

    Raises ``ValueError`` where a rank has more sends or receives of a direction than computes.
    """
    after: dict[int, list[int]] = defaultdict(list)
    order = np.lexsort((kind, start_ns, rank))
    for own in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1):
        of_kind = {k: own[kind[own] == k].tolist() for k in RowKind}
        compute = own[np.isin(kind[own], _COMPUTE)].tolist()
        others = of_kind[RowKind.OTHER]
        _chain(after, compute)
        _sends(after, of_kind)
        _receives(after, of_kind)
        _around(after, compute, others, start_ns)
    edges = np.full((len(rank), MAX_AFTER), len(rank))
    for row, before in after.items():
        edges[row, : len(before)] = before
    return edges


def _chain(after: dict[int, list[int]], rows: list[int]) -> None:
    for before, row in pairwise(rows):
        after[row].append(before)


def _sends(after: dict[int, list[int]], of_kind: dict[RowKind, list[int]]) -> None:
    for send, compute in _SENDS:
        _chain(after, of_kind[send])
        for row, made in _pairs(of_kind[send], of_kind[compute]):
            after[row].append(made)


def _receives(after: dict[int, list[int]], of_kind: dict[RowKind, list[int]]) -> None:
    for receive, compute in _RECVS:
        _chain(after, of_kind[receive])
        fed = of_kind[compute]
        for nth, (row, user) in enumerate(_pairs(of_kind[receive], fed)):
            after[user].append(row)
            if nth:
                after[row].append(fed[nth - 1])


def _pairs(p2p: list[int], compute: list[int]) -> list[tuple[int, int]]:
    if len(p2p) > len(compute):
        raise ValueError(f"{len(p2p)} P2P ops of a direction for {len(compute)} computes")
    return list(zip(p2p, compute, strict=False))


def _around(
    after: dict[int, list[int]], compute: list[int], others: list[int], start_ns: np.ndarray
) -> None:
    if not compute:
        _chain(after, others)
        return
    first, last = compute[0], compute[-1]
    before = [row for row in others if start_ns[row] < start_ns[first]]
    behind = [row for row in others if start_ns[row] >= start_ns[last]]
    between = [row for row in others if start_ns[first] <= start_ns[row] < start_ns[last]]
    _chain(after, [*before, first])
    _chain(after, [last, *behind])
    for row in between:  # overlaps with compute: after the compute op that was running or over
        begun = [c for c in compute if start_ns[c] <= start_ns[row]]
        if len(begun) > 1:
            after[row].append(begun[-2])
