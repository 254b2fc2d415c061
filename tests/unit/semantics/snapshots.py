"""Snapshots as they pass from one process to the next."""

from __future__ import annotations

import msgspec

from comminsight.semantics.engine import EngineSnapshot, SessionEngine


def carried(engine: SessionEngine) -> EngineSnapshot:
    """The snapshot of an engine, read back from its bytes."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(engine.snapshot()), type=EngineSnapshot)
