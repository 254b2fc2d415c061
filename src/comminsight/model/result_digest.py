"""Digests of results, to tell whether two runs computed the same bits."""

from __future__ import annotations

import msgspec


class ResultDigest(msgspec.Struct, frozen=True, kw_only=True):
    """A digest of what one rank held after the ``call``-th time that ``name`` was computed."""

    global_rank: int
    name: str
    digest: str
    call: int = 0
