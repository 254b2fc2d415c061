"""How jobs end after a hang, or without one: what the report of the spool says afterwards.

Victims and ranks that were ended together are never named; what began it is, where it is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from comminsight.model.verdict import Cause
from comminsight.run import open_run
from tests.unit.native.door import LIBRARY
from tests.unit.nccl.playing import run_text
from tests.unit.nccl.scenes import needs_program

pytestmark = [pytest.mark.real, needs_program]

LOOP = """ranks 4
comm w all label=default_pg
repeat 10
all: delay 3ms
all: all_reduce w count=1M duration=500us
all: sync
repeat end
"""
TASKLESS = """ranks 4
comm w all label=default_pg nonblocking
repeat 10
all: delay 3ms
all: all_reduce w count=64k via=symmetric
all: all_reduce w count=256k
all: sync
repeat end
all: all_reduce w count=64k via=symmetric
end hold 400ms then=finalize
"""
GAPS = """ranks 4
comm w all label=default_pg
repeat 5
rank 1: mask none
all: all_reduce w count=1M
all: mask light
all: all_gather w count=1M
all: sync
repeat end
not 3: all_reduce w
end hold 400ms then=finalize
"""
MISSING = LOOP + "not 2: all_reduce w count=1M\n"


@dataclass(frozen=True)
class End:
    """A script, and who is named for what when it is over; ``missing`` is said to be missing."""

    script: str
    cause: Cause
    culprits: tuple[int, ...] = ()
    match_seq: int = 11
    overdue_s: str = "0.1"
    missing: str = ""
    without: tuple[str, ...] = field(default=())


ENDS = {
    "healthy_without_tasks": End(TASKLESS, Cause.NO_VERDICT),
    "left_then_killed": End(
        MISSING + "rank 2: exit\nend hold 800ms then=kill\n", Cause.RANK_DEAD, (2,)
    ),
    "blocked_then_killed": End(
        MISSING + "rank 2: all_reduce w count=1M connect=blocked\nend hold 800ms then=kill\n",
        Cause.HOST_BLOCKED, (2,),
    ),
    "absent_then_all_abort": End(
        MISSING + "end hold 400ms then=abort\n", Cause.RANK_NOT_ENTERED, (2,)
    ),
    "absent_then_all_exit": End(
        MISSING + "end hold 400ms then=exit\n", Cause.RANK_NOT_ENTERED, (2,)
    ),
    "unseen_calls": End(GAPS, Cause.NO_VERDICT, missing="missing.counts"),
    "died_before_the_limit": End(
        LOOP + "rank 1: kill\nnot 1: all_reduce w count=4M\nend hold 3s then=kill\n",
        Cause.RANK_DEAD, (1,), overdue_s="60",
    ),
    "without_boxes": End(
        MISSING + "end hold 400ms then=kill\n", Cause.NO_VERDICT, missing="missing.box",
        without=("boxes",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_what_is_said_when_it_is_over(end, tmp_path, monkeypatch):
    limit = {"COMMINSIGHT_OVERDUE_S": end.overdue_s}
    run_text(tmp_path, end.script, "--release", "2.30", plugin=LIBRARY, **limit)
    boxes = "elsewhere" if "boxes" in end.without else "boxes"
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / boxes))
    verdict = open_run(tmp_path / "spool").report().verdicts[0]
    assert (verdict.cause, verdict.culprits) == (end.cause, end.culprits)
    if end.culprits:
        assert verdict.first_bad_op.match_seq == end.match_seq
    assert not end.missing or end.missing in {missing.code for missing in verdict.missing}
