"""What an op is made of: the small enumerations of the record, each with 0 = unknown.

The numbers are part of the file format: append, never renumber. ``tools/gen_wire.py`` writes
them into ``native/wire.h``.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum


class RecordKind(IntEnum):
    """What a record of the stream speaks of."""

    UNKNOWN = 0
    COLLECTIVE = 1
    P2P = 2
    NET = 3  # network summary of an op (NET_DTYPE), joined by comm_index + op_seq
    DRAIN = 4  # forced drain: everything before it may be committed (seal, explicit end)
    NOTICE = 5  # a change of what is recorded, or the door's own counters (NOTICE_DTYPE)


class Op(IntEnum):
    """The call, by its name in torch.distributed; P2P calls follow the collectives."""

    UNKNOWN = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    GATHER = 6
    SCATTER = 7
    ALL_TO_ALL = 8
    BARRIER = 9
    SEND = 10
    RECV = 11


class DType(IntEnum):
    """Element type."""

    UNKNOWN = 0
    INT8 = 1
    UINT8 = 2
    INT32 = 3
    UINT32 = 4
    INT64 = 5
    UINT64 = 6
    FLOAT16 = 7
    BFLOAT16 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    FLOAT8_E4M3 = 11
    FLOAT8_E5M2 = 12
    BOOL = 13
    INT16 = 14
    COMPLEX64 = 15
    COMPLEX128 = 16


class RedOp(IntEnum):
    """Reduction operator."""

    UNKNOWN = 0
    SUM = 1
    AVG = 2
    PRODUCT = 3
    MIN = 4
    MAX = 5
    BAND = 6
    BOR = 7
    BXOR = 8
    PREMUL_SUM = 9


class Algorithm(IntEnum):
    """Algorithm the library chose."""

    UNKNOWN = 0
    RING = 1
    TREE = 2
    COLLNET_DIRECT = 3
    COLLNET_CHAIN = 4
    NVLS = 5
    NVLS_TREE = 6
    PAT = 7
    SYMMETRIC = 8
    COPY_ENGINE = 9


class Protocol(IntEnum):
    """NCCL wire protocol."""

    UNKNOWN = 0
    LL = 1
    LL128 = 2
    SIMPLE = 3


class OpState(IntEnum):
    """Where the op stood when the record was written.

    ``OPEN`` is a marker of an op still in flight (it holds the watermark); ``OVERDUE`` is the
    marker at the overdue limit (it releases the hold). A later record with the same
    (comm_index, op_seq) completes either.
    """

    UNKNOWN = 0
    OPEN = 1
    OVERDUE = 2
    DONE = 3
    FAILED = 4  # the library reported an error to the caller
    ABORTED = 5  # the communicator was torn down under it
    UNOBSERVABLE = 6  # issued, but its end cannot be seen by this capture


class TimingSource(IntEnum):
    """Where ``end_ns`` comes from."""

    UNKNOWN = 0
    HOST_FUTURE = 1  # completion callback of the backend's worker
    HOST_WAIT = 2  # return of wait(): an upper bound of the end
    GPU = 3
    HOST_KERNEL_CALLBACK = 4
    HOST_RETURN = 5  # a blocking call returned


class OpFlag(IntFlag):
    """Bits of ``flags``."""

    ASYNC = 1 << 0
    COALESCED = 1 << 1  # n_folded calls of one group call stand in this record
    WAS_OPEN = 1 << 2  # an OPEN marker of this op is earlier in the stream
    WAS_OVERDUE = 1 << 3  # an OVERDUE marker of this op is earlier in the stream
    FUTURE_START = 1 << 4  # start lies in the future of the record: clock step or corruption
    GRAPH = 1 << 5  # replayed from a captured graph
    END_UNSEEN = 1 << 6  # nobody waited in a way we can see; end_ns stays 0


class EndReason(IntEnum):
    """Why an op has no end of its own; ``reason`` of an UNOBSERVABLE record."""

    UNKNOWN = 0
    NO_TASK = 1  # the call was seen, no task of it ever: symmetric kernels, AllGatherV, old CE
    NO_CHANNELS = 2  # the task names no channel, and no other task of its launch stands for it
    COPY_ENGINE = 3  # enqueued on a copy engine, whose end NCCL does not tell
    NO_KERNEL_EVENTS = 4  # the mask left out kernel events when the op was issued
    UNTRUSTED_CHANNELS = 5  # the number of channels was not filled in
    OVERTAKEN = 6  # a later launch of the communicator ended; this one's channels never told


class NoticeReason(IntEnum):
    """What a NOTICE record tells; its ``reason``."""

    UNKNOWN = 0
    CONTROL = 1  # a control word or the disable file changed what is recorded
    OVERHEAD_GUARD = 2  # the recorder cost more than its budget and stepped its mask down
    COUNTERS = 3  # counters of the NCCL door so far


class SlotFlag(IntFlag):
    """How far an op in flight came in the library's host code (bits of ``slot_flags``)."""

    NCCL = 1 << 0  # recorded by the NCCL door: the other bits mean something
    API_SEEN = 1 << 1  # begun at the call itself, not at its task
    API_RETURNED = 1 << 2  # queued; nothing launched yet
    GROUP_ENDED = 1 << 3  # the outermost group end has begun
    LAUNCH_BEGUN = 1 << 4
    LAUNCH_RETURNED = 1 << 5
    GROUP_LEFT = 1 << 8  # the group call returned to the caller
    NO_KERNEL_EVENTS = 1 << 9  # the mask leaves out kernel events: no end will be seen
    NETWORK_SEEN = 1 << 10  # proxy ops were recorded: wait_side and net counters mean something
    # A byte of their own, since another thread than the caller's may raise them.
    TASK_SEEN = 1 << 16  # it has a task with channels, peer and algorithm
    TASK_HANDED_OVER = 1 << 17


class WaitSide(IntEnum):
    """What a proxy step waits for; byte 0 of ``wait_side`` for sends, byte 1 for receives."""

    NONE = 0
    GPU = 1  # the local GPU does not produce (send) or consume (receive)
    PEER = 2  # send: the receiver gives no credit
    NETWORK = 3  # send: posted and not completed
    ARRIVAL = 4  # receive: posted and nothing arrived; sender or network
    FLUSH = 5  # receive: arrived, being flushed


class Backend(IntEnum):
    """Communication library of a communicator."""

    UNKNOWN = 0
    NCCL = 1
    GLOO = 2
    MPI = 3
    HCCL = 4


class LossReason(IntEnum):
    """Why an op or record is not in the stream; index into a loss row of the black box."""

    UNKNOWN = 0
    SLOTS_FULL = 1  # no in-flight slot free at begin
    SLOT_QUOTA = 2  # the communicator used up its share of slots
    RING_QUOTA = 3  # the communicator flooded the ring faster than it drains
    RING_OVERWRITTEN = 4  # the drain thread fell a whole ring behind
    STALE_HANDLE = 5  # end of an op whose slot was retired
    BELOW_MIN_SIZE = 6  # filtered by the minimum size
    MASKED = 7  # filtered by the event mask or recording off
    COMM_TABLE_FULL = 8  # ops of a communicator that has no row
    SEGMENT_WRITE = 9  # the segment could not be written (disk full, error)
    SEGMENT_CAP = 10  # removed by the retention cap
    FIFO_FULL = 11  # FIFO door only: reader too slow
    CAPTURE_SKIPPED = 12  # an op form the capture does not cover
    FORKED = 13  # a forked child used a parent's communicator


class CommRole(StrEnum):
    """What a communicator is for in the parallel layout."""

    GLOBAL = "GLOBAL"
    DP = "DP"
    DP_SHARD = "DP_SHARD"
    DP_REPLICATE = "DP_REPLICATE"
    TP = "TP"
    PP = "PP"
    EP = "EP"
    EDP = "EDP"
    CP = "CP"
    MP = "MP"
    EMB = "EMB"
    DIST_OPT = "DIST_OPT"
    LOSS = "LOSS"
    CPU = "CPU"
    UNKNOWN = "UNKNOWN"


P2P_OPS = frozenset({Op.SEND, Op.RECV})

DTYPE_SIZE_BYTES: dict[DType, int] = {
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.BOOL: 1,
    DType.FLOAT8_E4M3: 1,
    DType.FLOAT8_E5M2: 1,
    DType.INT16: 2,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.INT32: 4,
    DType.UINT32: 4,
    DType.FLOAT32: 4,
    DType.INT64: 8,
    DType.UINT64: 8,
    DType.FLOAT64: 8,
    DType.COMPLEX64: 8,
    DType.COMPLEX128: 16,
}
