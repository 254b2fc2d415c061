"""The collectives that a rank called, in the order of its program, to compare ranks by.

A dump keeps the last calls of a process, a log those from its first line on: ``n_before`` came
before these, -1 where nobody counted them.
"""

from __future__ import annotations

import msgspec


class CalledOp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One collective as its caller meant it; 0, "" and () where that was not told.

    ``match_seq`` is its number in the communicator, ``call`` the name of its function, ``count``
    and ``out_count`` the elements put in and given out, ``shape`` the extents of the first tensor,
    ``peer`` its root, -1 without one or where it is not known.
    """

    comm_id: int
    match_seq: int
    op: int
    call: str = ""
    dtype: int = 0
    count: int = 0
    out_count: int = 0
    size_bytes: int = 0
    peer: int = -1
    shape: tuple[int, ...] = ()


class CallHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one rank in all its communicators, oldest first."""

    global_rank: int
    calls: tuple[CalledOp, ...]
    n_before: int = -1
