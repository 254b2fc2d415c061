"""What a step would gain if a part of the job behaved like its peers: what analysis hands on."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.verdict import Coverage, Message

WHAT_IF_SCHEMA_VERSION = "1.0.0"


class PartKind(StrEnum):
    """What behaves like its peers."""

    ALL = "all"
    RANK = "rank"
    NODE = "node"
    STAGE = "stage"
    LINK = "link"
    OP_CLASS = "op_class"


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """One part, and the mean time that a step would lose: low <= expected <= high.

    ``ranks`` are the global ranks of the part (of a link: its members, or sender and receiver).
    ``name`` is the node, the stage, the label of the communicator, or role and op.
    ``cannot_tell`` says why the bounds decide nothing, None where they do.
    """

    kind: PartKind
    name: str = ""
    ranks: tuple[int, ...] = ()
    sender: int = -1
    receiver: int = -1
    low_ns: int = 0
    expected_ns: int = 0
    high_ns: int = 0
    cannot_tell: Message | None = None


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    """Gains of all parts that were tried, of a step of ``step_ns`` on average.

    ``n_steps`` were replayed, ``n_steps_left_out`` could not be. ``missing`` is what the answer
    does not know.
    """

    schema_version: str
    run_id: str
    step_ns: int
    n_steps: int
    n_steps_left_out: int
    coverage: Coverage
    rows: tuple[WhatIfRow, ...] = ()
    missing: tuple[Message, ...] = ()
