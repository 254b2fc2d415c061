from __future__ import annotations

import pytest

from comminsight.diagnosis.rules.duplicate_gpu import duplicate_gpu_rule
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence
from tests.unit.analysis.log_texts import job_log

BEGAN = "n1:7{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 4 cudaDev {rank} busId {bus}000 commId 0x9 - Init START"  # noqa: E501
WARNED = "n1:7{rank}:9 [0] init.cc:600 NCCL WARN Duplicate GPU detected : rank {own} and rank {other} both on CUDA device b000"  # noqa: E501
BEGUN = [BEGAN.format(rank=rank, bus=f"{rank + 1:x}") for rank in range(4)]
OF_TWO = "n1:70:9 [0] NCCL INFO ncclCommInitRank comm 0x6 rank 0 nranks 2 cudaDev 0 busId b000 commId 0x7 - Init START"  # noqa: E501


@pytest.mark.parametrize(
    ("lines", "culprits", "confidence"),
    [
        ([*BEGUN, WARNED.format(rank=2, own=2, other=3)], (2, 3), Confidence.HIGH),
        # ranks 0 and 1 of a communicator of two: ranks 2 and 3 of the job
        (
            [*BEGUN, OF_TWO, WARNED.format(rank=2, own=0, other=1),
             WARNED.format(rank=3, own=1, other=0)],
            (2, 3), Confidence.HIGH,
        ),
        ([*BEGUN, OF_TWO, WARNED.format(rank=2, own=0, other=1)], (2,), Confidence.MEDIUM),
        ([WARNED.format(rank=2, own=0, other=1)], (), Confidence.MEDIUM),
    ],
)  # fmt: skip
def test_who_shares_a_gpu_is_told_in_ranks_of_the_job(
    lines: list[str], culprits: tuple[int, ...], confidence: Confidence
) -> None:
    (claim,) = duplicate_gpu_rule(JobEvidence(logs=(job_log(*lines),)))
    verdict = claim.verdict
    assert (verdict.cause, verdict.culprits) == (Cause.DUPLICATE_GPU, culprits)
    assert verdict.confidence is confidence
    assert bool(verdict.missing) == (len(culprits) < 2)
