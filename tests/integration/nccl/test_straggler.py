"""A slow rank named by nothing but the profiler plugin; a job of equal ranks accuses nobody."""

from __future__ import annotations

import pytest

from comminsight.model.ops import CommRole
from comminsight.model.verdict import Cause
from comminsight.run import Run, open_run
from tests.unit.native.door import LIBRARY
from tests.unit.nccl.playing import run_text
from tests.unit.nccl.scenes import needs_program

pytestmark = [pytest.mark.real, needs_program]

STEPS = """
ranks 4
patience 30s
release {release}
comm world all label=none

repeat 24
all: delay 8ms
{slow}
all: all_reduce world count=1M duration=500
all: all_reduce world count=2M duration=500
all: all_reduce world count=512k duration=500
all: sync
repeat end
end finalize
"""


def run_of(tmp_path, monkeypatch, script: str, **variables: str) -> Run:
    """The script played to its end."""
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    done = run_text(tmp_path, script, plugin=LIBRARY, **variables)
    assert done.returncode == 0, done.stderr
    return open_run(tmp_path / "spool")


@pytest.mark.parametrize("mask", ["light", "net"])
@pytest.mark.parametrize("release", ["2.28", "2.30", "2.32"])
def test_a_rank_that_computes_longer_is_named(tmp_path, monkeypatch, release, mask) -> None:
    script = STEPS.format(release=release, slow="rank 2: delay 12ms")
    run = run_of(tmp_path, monkeypatch, script, COMMINSIGHT_NCCL_MASK=mask)
    report = run.report()
    assert [(v.cause, v.culprits) for v in report.verdicts] == [(Cause.COMPUTE_STRAGGLER, (2,))]
    assert (report.facts.end, len(report.steps)) == ("exited", 24)
    (world,) = report.communicators
    assert (world.role, world.is_role_inferred) == (CommRole.GLOBAL, True)
    assert world.members == (0, 1, 2, 3)
    assert report.coverage.records_lost == 0


def test_equal_ranks_accuse_nobody(tmp_path, monkeypatch) -> None:
    report = run_of(tmp_path, monkeypatch, STEPS.format(release="2.30", slow="")).report()
    assert [v.culprits for v in report.verdicts if v.cause is not Cause.NO_VERDICT] in ([], [()])
    assert report.facts.end == "exited"
