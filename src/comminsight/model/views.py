"""Smaller answers than a report: the ops of one rank in one step, one op from its call to the
network, and how the templates fared.

Everything is computed before it gets here; ``report`` formats it.
"""

from __future__ import annotations

import msgspec

from comminsight.model.verdict import MessageParam

VIEW_SCHEMA_VERSION = "1.3.0"
UNFINISHED_NS = -1  # a duration without an end


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """One op of one rank inside a step.

    ``start_offset_ns`` counts from the start of the step; ``duration_ns`` is ``UNFINISHED_NS``
    without an end. ``waited_ns`` is the time this rank waited in the op for its last member,
    ``waited_for`` that member's global rank, -1 for nobody or unknown. ``state`` is the lower-case
    name of an ``OpState``; ``peer`` the partner's global rank, -1 for collectives.
    """

    op: str
    role: str
    comm_label: str
    match_seq: int
    op_seq: int
    size_bytes: int
    start_offset_ns: int
    duration_ns: int
    waited_ns: int = 0
    waited_for: int = -1
    peer: int = -1
    state: str = "done"


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a step; ``start_offset_ns`` counts from its start. ``kind`` is a ``PhaseKind``.

    ``microbatch`` counts from 0 and is -1 for unknown; ``n_microbatches`` are those of the step, 0
    for unknown.
    """

    kind: str
    start_offset_ns: int
    duration_ns: int
    n_ops: int = 0
    microbatch: int = -1
    n_microbatches: int = 0


class StepOps(msgspec.Struct, frozen=True, kw_only=True):
    """All ops of one rank in one step, in the order of their start, and its phases likewise."""

    schema_version: str
    run_id: str
    global_rank: int
    host: str
    step: int
    template: str
    start_real_ns: int
    span_ns: int
    period_ns: int
    is_complete: bool
    ops: tuple[OpRow, ...] = ()
    step_view: str = "raw"  # or "calibrated": whose number ``step`` is
    phases: tuple[PhaseRow, ...] = ()


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of an op: ``api``, ``task``, ``kernel`` or ``network``.

    ``facts`` are its numbers and words by name, times as ``_offset_ns`` from the call. A layer that
    was not seen has a ``reason``, a catalogue code, and no facts.
    """

    name: str
    is_seen: bool
    reason: str = ""
    facts: dict[str, MessageParam] = {}


class OpStory(msgspec.Struct, frozen=True, kw_only=True):
    """One op of one rank, finished or in flight, layer by layer.

    ``state`` is the lower-case name of an ``OpState``, ``stage`` how far an op in flight came, a
    catalogue code, "" for ended ones. ``peer`` is the partner's or root's global rank, -1 for none
    or unknown. A fold stands for ``n_calls`` ops from ``op_seq`` on.
    """

    global_rank: int
    host: str
    comm_label: str
    op: str
    op_seq: int
    match_seq: int
    state: str
    started_real_ns: int
    n_calls: int = 1
    size_bytes: int = 0
    count: int = 0
    dtype: str = ""
    red_op: str = ""
    peer: int = -1
    stage: str = ""
    layers: tuple[Layer, ...] = ()


class AbsentOp(msgspec.Struct, frozen=True, kw_only=True):
    """A member without the op: it was never called there, or no record of it is at hand.

    ``last_op_seq`` is the last op of the communicator that the rank is known to have called, 0 for
    none. ``is_whole``: nothing of its record is missing, so that it has not called the op.
    """

    global_rank: int
    has_records: bool = False
    is_whole: bool = False
    last_op_seq: int = 0


class OpStories(msgspec.Struct, frozen=True, kw_only=True):
    """The same ``op_seq`` of one communicator on the ranks that have it, by rank, and the members
    that lack it. Ranks call it alike only while none of them has P2P calls of its own in the
    communicator: compare ``match_seq``."""

    schema_version: str
    run_id: str
    comm_label: str
    op_seq: int
    ops: tuple[OpStory, ...] = ()
    absent: tuple[AbsentOp, ...] = ()


class TemplateScore(msgspec.Struct, frozen=True, kw_only=True):
    """How one template fared on one session's ops, and why it was not taken.

    ``reason`` is a catalogue code, empty for the chosen one; ``covered_ops_ratio`` is the share of
    the session's ops inside a step of this template. All counts are over the first ``n_ops`` ops
    of the session, on which the choice fell. ``n_parts`` of the found steps look like one: 0 where
    nothing tells so, 1 where their number changes.
    """

    template: str
    version: int
    priority: int
    is_chosen: bool
    n_open: int = 0
    n_anchor: int = 0
    n_close: int = 0
    n_steps: int = 0
    covered_ops_ratio: float = 0.0
    reason: str = ""
    missing_symbols: tuple[str, ...] = ()
    n_ops: int = 0
    n_parts: int = 0
