"""Numbers of the record format, repeated here because the inject imports nothing of the analysis.

A test holds them against ``comminsight.model.ops``.
"""

from __future__ import annotations

KIND_COLLECTIVE, KIND_P2P = 1, 2

OP_ALL_REDUCE = 1
OP_ALL_GATHER = 2
OP_REDUCE_SCATTER = 3
OP_BROADCAST = 4
OP_REDUCE = 5
OP_GATHER = 6
OP_SCATTER = 7
OP_ALL_TO_ALL = 8
OP_BARRIER = 9
OP_SEND = 10
OP_RECV = 11

STATE_DONE, STATE_FAILED, STATE_ABORTED, STATE_UNOBSERVABLE = 3, 4, 5, 6
TIMING_UNKNOWN, TIMING_HOST_FUTURE, TIMING_HOST_WAIT, TIMING_HOST_RETURN = 0, 1, 2, 5
FLAG_ASYNC, FLAG_COALESCED = 1, 2
LOSS_CAPTURE_SKIPPED = 12

BACKENDS = {"nccl": 1, "gloo": 2, "mpi": 3, "hccl": 4}

# Name of the attribute of ``torch`` -> DType
DTYPES = {
    "int8": 1,
    "uint8": 2,
    "int32": 3,
    "uint32": 4,
    "int64": 5,
    "uint64": 6,
    "float16": 7,
    "bfloat16": 8,
    "float32": 9,
    "float64": 10,
    "float8_e4m3fn": 11,
    "float8_e5m2": 12,
    "bool": 13,
    "int16": 14,
    "complex64": 15,
    "complex128": 16,
}

# torch's ReduceOp.RedOpType counts SUM from 0 in the order of RedOp, which counts from 1.
N_RED_OPS = 9


def red_op_code(torch_red_op: int) -> int:
    """RedOp of torch's enumeration value; 0 for one that the format does not know."""
    return torch_red_op + 1 if 0 <= torch_red_op < N_RED_OPS else 0
