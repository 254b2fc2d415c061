"""Whom one rank made wait and who made it wait, partner by partner."""

from __future__ import annotations

import msgspec

from comminsight.model.verdict import Message

PAIRS_SCHEMA_VERSION = "1.0.0"


class PairPart(msgspec.Struct, frozen=True, kw_only=True):
    """Waits for one partner in ops of one kind on one communicator, summed op by op: waits that
    overlap count each, so that parts may add up to more than their pair."""

    op: str
    role: str
    comm_label: str
    wait_ns: int


class PairRow(msgspec.Struct, frozen=True, kw_only=True):
    """One partner. ``wait_ns``: waits of a step united, those of the other direction taken off,
    summed over the steps in which something was left; ``n_steps`` are those. Parts by size."""

    global_rank: int
    host: str
    wait_ns: int
    n_steps: int
    parts: tuple[PairPart, ...] = ()


class RankPairs(msgspec.Struct, frozen=True, kw_only=True):
    """``culprits`` made the rank wait, ``victims`` waited for it; the worst first, ``n_culprits``
    and ``n_victims`` in all. A rank may be both, in unlike steps.

    ``step`` is -1 for all steps; ``n_steps`` were looked at, ``n_incomplete`` were left out because
    records of the rank are missing there. ``missing`` tells why nothing can be said at all.
    """

    schema_version: str
    run_id: str
    global_rank: int
    host: str
    step: int
    step_view: str
    n_steps: int
    n_incomplete: int
    clock_error_ns: int
    culprits: tuple[PairRow, ...] = ()
    victims: tuple[PairRow, ...] = ()
    n_culprits: int = 0
    n_victims: int = 0
    missing: tuple[Message, ...] = ()
