"""A training step as rebuilt from one rank's ops, with the evidence that bounds it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StepEvidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One op that bounds or aligns a step (First, Anchor or Last)."""

    comm_hash: int
    comm_index: int
    role: str
    op: int
    op_seq: int  # coll_local_sn
    match_seq: int
    func_seq: int  # coll_sn
    size_bytes: int
    start_ns: int
    seq: int
    peer: int = -1  # of P2P ops: comm-local rank of the partner
    is_replay: bool = False  # of a captured graph: match_seq counts these apart


class StepEnd(StrEnum):
    """How the end of a step was proved."""

    CLOSE = "close"
    NEXT_OPEN = "next_open"  # Close was lost; closed at the last op before the next Open
    EXPLICIT = "explicit"  # Close or Anchor seen and the stream was ended explicitly


class PhaseKind(StrEnum):
    """Part of a step.

    ``FORWARD`` to ``UNKNOWN`` follow each other and never overlap: what the rank does, where the
    ops tell. ``GRAD_SYNC`` (gradients in flight), ``BUBBLE`` (waiting to receive), the three parts
    of a pipeline and what an iteration of a serving job did lie over them.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    GRAD_SYNC = "grad_sync"
    OPTIMIZER = "optimizer"
    BUBBLE = "bubble"
    UNKNOWN = "unknown"
    WARM_UP = "warm_up"  # forward passes before forward and backward take turns
    STEADY = "steady"
    COOL_DOWN = "cool_down"  # backward passes after the last forward
    PREFILL = "prefill"  # the tokens of a prompt, and no decode
    DECODE = "decode"  # of each sequence tokens that all have logits: no prompt but its last token


class Phase(msgspec.Struct, frozen=True, gc=False):
    """A half-open interval ``[start_ns, end_ns)`` of a step.

    ``microbatch`` counts from 0 and is -1 for unknown; ``n_microbatches`` are those of the step, 0
    for unknown.
    """

    kind: PhaseKind
    start_ns: int
    end_ns: int
    n_ops: int = 0
    microbatch: int = -1
    n_microbatches: int = 0


class StepSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step of one session.

    ``span_ns`` = first op's start to the end of Close (or of the last op): the article's window.
    ``period_ns`` = this Open to the next Open, the step time a user feels; 0 until the next Open.
    ``gap_ns`` = end of this window to the next Open; 0 until the next Open.
    ``coverage_complete`` is false when records were lost or late inside the window, the Anchor
    is missing, or the end was not proved by Close.
    """

    session_id: str
    global_rank: int
    step: int
    template: str
    template_version: int
    template_file_version: int
    first: StepEvidence
    last: StepEvidence
    anchor: StepEvidence | None = None
    start_ns: int = 0
    end_ns: int = 0
    span_ns: int = 0
    period_ns: int = 0
    gap_ns: int = 0
    n_ops: int = 0
    n_ops_between: int = 0  # ops after this step's end and before the next Open
    first_seq: int = 0
    last_seq: int = 0
    end_proof: StepEnd = StepEnd.CLOSE
    coverage_complete: bool = True
    n_late: int = 0
    n_lost: int = 0
    phases: tuple[Phase, ...] = ()
