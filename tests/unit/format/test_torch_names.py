"""Names of collectives and element types as PyTorch's profiles have them."""

from __future__ import annotations

import pytest

from comminsight.format.torch_names import element_bytes, op_of_call
from comminsight.model.ops import Op


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allreduce", Op.ALL_REDUCE), ("all_reduce", Op.ALL_REDUCE),
        ("nccl:all_reduce", Op.ALL_REDUCE), ("allreduce_coalesced", Op.ALL_REDUCE),
        ("_allgather_base", Op.ALL_GATHER), ("allgather_into_tensor_coalesced", Op.ALL_GATHER),
        ("_reduce_scatter_base", Op.REDUCE_SCATTER), ("reduce_scatter", Op.REDUCE_SCATTER),
        ("_broadcast_oop", Op.BROADCAST), ("_reduce_oop", Op.REDUCE), ("gather", Op.GATHER),
        ("scatter", Op.SCATTER), ("all_to_allv", Op.ALL_TO_ALL), ("alltoall_base", Op.ALL_TO_ALL),
        ("barrier", Op.BARRIER), ("send", Op.SEND), ("recv", Op.RECV), ("nccl:recv 0<-1", Op.RECV),
        ("gloo:all_gather", Op.ALL_GATHER), ("wait", Op.UNKNOWN), ("coalesced", Op.UNKNOWN),
        ("init", Op.UNKNOWN), ("", Op.UNKNOWN), ("_" * 5000, Op.UNKNOWN),
    ],
)  # fmt: skip
def test_the_op_of_a_call(name: str, op: Op) -> None:
    assert op_of_call(name) == op


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [
        ("Float", 4), ("float", 4), ("c10::BFloat16", 2), ("BFloat16", 2), ("Half", 2),
        ("Long", 8), ("long int", 8), ("unsigned char", 1), ("Float8_e4m3fn", 1), ("Quaternion", 0),
    ],
)  # fmt: skip
def test_the_size_of_an_element(name: str, n_bytes: int) -> None:
    assert element_bytes(name) == n_bytes
