"""Ascend's reports name a rank only where their numbers are those of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose

SAID = (
    "EI0002: The wait execution of the Notify register times out. The Notify register has not"
    " received the record from remote rank [{}]. base information: [group size: 4, local rank: {}]"
)


@pytest.mark.parametrize(
    ("local", "remote", "culprits"),
    [
        ({0: 0, 1: 1, 3: 3}, 2, (2,)),
        ({8: 0, 9: 1, 11: 3}, 2, ()),  # a group whose ranks are not those of the job
        ({0: 0, 1: 1}, 3, ()),  # behind all who tell their own number: perhaps another one there
    ],
)
def test_ranks_of_a_group_are_not_taken_for_those_of_the_job(
    local: dict[int, int], remote: int, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    for rank, own in local.items():
        line = SAID.format(remote, own)
        (tmp_path / f"plog_rank{rank}.log").write_text(f"[ERROR] HCCL {line}\n" * 2)
    (verdict, *_) = diagnose([tmp_path]).verdicts
    assert verdict.culprits == culprits
    assert (verdict.cause is Cause.RANK_NOT_ENTERED) == bool(culprits)
