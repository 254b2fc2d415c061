"""A young wait in a dump is a hang where the log tells that the rank gave it up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose
from tests.builders.flight_recorder import T0, Call, FlightJob, Group, write_dumps

LINE = (
    "[rank{rank}]:[E414 16:17:16.250000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=128,"
    " NumelOut=128, Timeout(ms)=14000) ran for 14003 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("seq", "cause"), [(5, Cause.RANK_NOT_ENTERED), (3, Cause.NO_VERDICT), (0, Cause.NO_VERDICT)]
)
def test_what_a_rank_gave_up_is_overdue(seq: int, cause: Cause, tmp_path: Path) -> None:
    """Of another op (3), or without any line (0), the wait may still have ended."""
    world = {"0": Group("default_pg", (0, 1, 2, 3))}
    programs = {rank: [Call("0", "all_reduce")] * (4 if rank == 2 else 5) for rank in range(4)}
    for path in write_dumps(tmp_path, FlightJob(world, programs).play()):
        os.utime(path, ns=(T0 + 11_500_000_000, T0 + 11_500_000_000))
    if seq:
        for rank in (0, 1, 3):
            (tmp_path / f"rank{rank}.log").write_text(LINE.format(rank=rank, seq=seq))
    verdict = diagnose([tmp_path]).verdicts[0]
    assert verdict.cause is cause
    assert verdict.culprits == ((2,) if cause is Cause.RANK_NOT_ENTERED else ())
