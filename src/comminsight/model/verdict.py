"""A verdict: what is wrong, who caused it, who suffers, on which evidence, and what is not known.

Text never travels in a verdict: codes and parameters do (``Message``), and ``report`` turns them
into English or Chinese through one catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

MessageParam = int | float | str | Sequence[int | str]  # one array type: msgspec decodes it


class Message(msgspec.Struct, frozen=True):
    """A catalogue code with its parameters."""

    code: str
    params: dict[str, MessageParam] = {}


class Cause(StrEnum):
    """What a verdict says happened (vocabulary of the field cases)."""

    HEALTHY = "HEALTHY"
    NO_VERDICT = "NO_VERDICT"
    RANK_DEAD = "RANK_DEAD"
    RANK_NOT_ENTERED = "RANK_NOT_ENTERED"
    CONTROL_FLOW_SKIP = "CONTROL_FLOW_SKIP"
    EXTRA_COLLECTIVE = "EXTRA_COLLECTIVE"
    ORDER_INVERSION = "ORDER_INVERSION"
    OP_TYPE_MISMATCH = "OP_TYPE_MISMATCH"
    SHAPE_MISMATCH = "SHAPE_MISMATCH"
    DTYPE_MISMATCH = "DTYPE_MISMATCH"
    ROOT_MISMATCH = "ROOT_MISMATCH"
    P2P_UNMATCHED = "P2P_UNMATCHED"
    P2P_CYCLE = "P2P_CYCLE"
    CROSS_GROUP_CYCLE = "CROSS_GROUP_CYCLE"
    ALL_PRESENT_STUCK = "ALL_PRESENT_STUCK"
    LONG_LEGIT_OP = "LONG_LEGIT_OP"
    HEALTHY_IDLE = "HEALTHY_IDLE"
    GROUP_MISUSE = "GROUP_MISUSE"
    INIT_STUCK = "INIT_STUCK"
    INIT_WRONG_INTERFACE = "INIT_WRONG_INTERFACE"
    INIT_STORE_UNREACHABLE = "INIT_STORE_UNREACHABLE"
    DUPLICATE_GPU = "DUPLICATE_GPU"
    SHM_EXHAUSTED = "SHM_EXHAUSTED"
    MEMLOCK_LOW = "MEMLOCK_LOW"
    FD_LIMIT = "FD_LIMIT"
    QP_CQ_EXHAUSTED = "QP_CQ_EXHAUSTED"
    COMM_MEMORY = "COMM_MEMORY"
    TIMEOUT_CONFIG = "TIMEOUT_CONFIG"
    HEARTBEAT_FALSE_ALARM = "HEARTBEAT_FALSE_ALARM"
    PLUGIN_FALLBACK = "PLUGIN_FALLBACK"
    KNOWN_BAD_VERSION = "KNOWN_BAD_VERSION"
    ENV_SKEW = "ENV_SKEW"
    HOST_BLOCKED = "HOST_BLOCKED"
    KERNEL_NOT_STARTED = "KERNEL_NOT_STARTED"
    PEER_UNREACHABLE = "PEER_UNREACHABLE"
    COMPUTE_STRAGGLER = "COMPUTE_STRAGGLER"
    INPUT_STRAGGLER = "INPUT_STRAGGLER"
    HOST_PAUSE = "HOST_PAUSE"
    LOAD_IMBALANCE = "LOAD_IMBALANCE"
    SLOW_LINK = "SLOW_LINK"
    LINK_FLAP = "LINK_FLAP"
    MTU_MISMATCH = "MTU_MISMATCH"
    ROCE_LOSS = "ROCE_LOSS"
    NIC_SHARED = "NIC_SHARED"
    NIC_ASYMMETRY = "NIC_ASYMMETRY"
    P2P_BLOCKED = "P2P_BLOCKED"
    TOPO_BOTTLENECK = "TOPO_BOTTLENECK"
    AFFINITY_BAD = "AFFINITY_BAD"
    VERSION_SKEW = "VERSION_SKEW"
    NONDETERMINISTIC_ALGO = "NONDETERMINISTIC_ALGO"
    JOB_KILLED = "JOB_KILLED"
    EXPOSED_COMM = "EXPOSED_COMM"
    NO_OVERLAP_BY_DEPENDENCY = "NO_OVERLAP_BY_DEPENDENCY"
    SMALL_MESSAGES = "SMALL_MESSAGES"
    DATA_INCOMPLETE = "DATA_INCOMPLETE"
    DATA_CORRUPT = "DATA_CORRUPT"


# by these nothing is told to be wrong, and nobody is named
UNREMARKABLE = frozenset({Cause.HEALTHY, Cause.NO_VERDICT})


class Confidence(StrEnum):
    """How far the evidence carries."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


class ChainLevel(StrEnum):
    """Levels of the causal chain, from the job down to the port."""

    JOB = "job"
    ROLE = "role"
    STEP = "step"
    COMMUNICATOR = "communicator"
    OP = "op"
    RANK = "rank"
    NODE = "node"
    PORT = "port"


class ChainLink(msgspec.Struct, frozen=True):
    """One level of the chain; ``value`` is ``unknown`` where there is no evidence."""

    level: ChainLevel
    value: str
    evidence: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Pointer to what supports a verdict: a record, a stack, a measure."""

    kind: str
    message: Message
    global_rank: int = -1
    comm_id: int = -1
    op_seq: int = 0
    match_seq: int = 0
    seq: int = 0
    step: int = -1
    text: str = ""  # verbatim evidence (a stack, a log line); never a sentence of ours


class OpRef(msgspec.Struct, frozen=True, kw_only=True):
    """An op instance as people look it up.

    ``peer`` is comm-local; ``sender`` and ``receiver`` of a P2P op are global ranks, -1 unknown.
    ``match_seq`` counts replays of captured graphs apart from the calls of the program.
    """

    comm_id: int
    comm_label: str
    op: str
    match_seq: int
    size_bytes: int = 0
    dtype: str = ""
    peer: int = -1
    sender: int = -1
    receiver: int = -1
    is_replay: bool = False


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict was based on, and what was lost.

    ``ranks_missing`` names the first 4,096; ``ranks_expected - ranks_seen`` is their number.
    """

    ranks_expected: int
    ranks_seen: int
    ranks_missing: tuple[int, ...] = ()
    records_read: int = 0
    records_lost: int = 0
    steps_used: int = 0
    steps_excluded: int = 0
    clock_error_ns: int = 0
    unseen_step_ratio: float = 0.0
    tally: dict[str, int] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The statement of one rule."""

    rule: str
    cause: Cause
    confidence: Confidence
    coverage: Coverage
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    comm_id: int = -1
    first_bad_op: OpRef | None = None
    first_step: int = -1
    last_step: int = -1
    measures: dict[str, float] = {}
    chain: tuple[ChainLink, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Message, ...] = ()
    next_actions: tuple[Message, ...] = ()
