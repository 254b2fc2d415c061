"""The class of a kernel by its name."""

from __future__ import annotations

import pytest

from comminsight.model.activity import ActivityKind
from comminsight.semantics.kernel_kind import kind_of_kernel

COMM, WAIT, COPY, OTHER = (
    ActivityKind.COMMUNICATION, ActivityKind.WAIT, ActivityKind.COPY, ActivityKind.OTHER,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "is_library"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", COMM, True),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(args)", COMM, True),
        ("ncclDevKernel_SendRecv", COMM, True),
        ("rcclGenericKernel", COMM, True),
        ("nccl:_all_gather_base", COMM, True),
        ("hccl:all_reduce", COMM, True),
        ("gloo:broadcast", COMM, True),
        ("void deep_ep::internode::combine<bf16>()", COMM, False),
        ("cross_device_reduce_2stage<half>", COMM, False),
        ("nvshmemi_put_block", COMM, False),
        ("Stream Sync", WAIT, True),
        ("cudaStreamSynchronize", WAIT, True),
        ("Memcpy HtoD (Pinned -> Device)", COPY, True),
        ("ampere_bf16_s16816gemm", OTHER, True),
        ("void cutlass::Kernel<function_nccl_like>", OTHER, True),
        ("syncthreads_heavy_kernel", OTHER, True),
        ("", OTHER, True),
    ],
)
def test_what_a_name_tells(name: str, kind: ActivityKind, is_library: bool) -> None:
    assert kind_of_kernel(name) == (kind, is_library)
