"""The algorithm that NCCL's tuning lines tell, in the forms of its releases."""

from __future__ import annotations

import pytest

from comminsight.format.nccl_algorithm import observed
from comminsight.model.bench import Observed

HEAD = "n1:10:11 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("AllReduce: 26214400 Bytes -> Algo Tree proto LL128 channel{Lo..Hi}={0..23}",
         ("AllReduce", "TREE", "LL128", "0-23")),
        ("AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..7}",
         ("AllReduce", "NVLS", "SIMPLE", "0-7")),
        ("ReduceScatter: 4096 Bytes -> Algo RING proto LL", ("ReduceScatter", "RING", "LL", "")),
        ("17000000 Bytes -> Algo 1 proto 2 time 12.5", ("", "RING", "SIMPLE", "")),
        ("512 Bytes -> Algo 0 proto 0 time 3.1", ("", "TREE", "LL", "")),
        ("AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.2",
         ("AllGather", "RING", "SIMPLE", "")),
        ("AllReduce [Symmetric]: 8388608 Bytes -> Kernel AllReduce_RSxLDMC_AGxSTMC nchannels 16"
         " nthreads 512 nWorks 1", ("AllReduce", "RSXLDMC_AGXSTMC", "", "0-15")),
        ("AllGather [Symmetric]: 64 Bytes -> Kernel AllGather_LL nchannels 1 nthreads 512",
         ("AllGather", "LL", "", "0-0")),
        ("512 Bytes -> Algo 99 proto 1 time 3.1", ("", "99", "LL128", "")),
    ],
)  # fmt: skip
def test_a_tuning_line_tells_it(line: str, told: tuple[str, str, str, str]) -> None:
    op, algo, proto, channels = told
    assert observed(f"{HEAD}{line}\n{HEAD}{line}\n") == (
        Observed(op=op, algo=algo, proto=proto, channels=channels, source="nccl_tuning_line"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_ALGO set by environment to Tree.",
        "Ring 00 : 1 -> 0 -> 1",
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        "Channel 00/02 :    0   1",
        "Connected all rings",
        "99999999999999999999 Bytes -> Algo 1 proto 2 time 12.5",
        "Bytes -> Algo",
    ],
)
def test_nothing_else_does(line: str) -> None:
    assert observed(f"{HEAD}{line}\n") == "unconfirmed"
