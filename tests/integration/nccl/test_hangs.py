"""Jobs that hang, and some that only look like it, judged as a user would: ``report`` of the spool
while the processes live, and of what they left when they are killed.

The cause, who began it, who suffers, and on which op; or that there is no hang. A wrong accusation
is the worst, so where the release or the mask does not show enough the row says what may be said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from comminsight.cli import report
from comminsight.errors import ExitCode
from comminsight.model.verdict import Cause, Confidence
from comminsight.run import open_run
from tests.unit.nccl.scenes import kill_all, needs_program, settled, staged, wait_until_overdue

OVERDUE_S = 0.1

pytestmark = [pytest.mark.real, needs_program]


@dataclass(frozen=True)
class Hang:
    """``comm`` and ``match_seq`` name the first bad op, which may be that of any of ``comm``;
    ``stage`` is how far the op of the culprits came, or of all where nobody is named."""

    scenario: str
    cause: Cause
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    comm: tuple[str, ...] = ("world",)
    match_seq: int = 4
    releases: tuple[str, ...] = ("2.27", "2.30", "2.32")
    env: dict[str, str] = field(default_factory=dict)
    stage: str = ""


API = ("2.30", "2.32")
SHIM = ("2.28 shim v4",)
DEEP = {"COMMINSIGHT_NCCL_MASK": "deep"}

HANGS = (
    Hang("missing_caller", Cause.RANK_NOT_ENTERED, (3,), (0, 1, 2), match_seq=3),
    Hang("function", Cause.OP_TYPE_MISMATCH, (2,), (0, 1, 3), releases=(*SHIM, "2.29")),
    Hang("count", Cause.SHAPE_MISMATCH, (1,), (0, 2, 3), releases=(*SHIM, "2.31")),
    Hang("dtype", Cause.DTYPE_MISMATCH, (0,), (1, 2, 3), releases=("2.27", "2.28")),
    Hang("root", Cause.ROOT_MISMATCH, (3,), (0, 1, 2), releases=("2.27", "2.31")),
    Hang("order", Cause.CROSS_GROUP_CYCLE, (0, 1), comm=("a", "b"), match_seq=2),
    Hang("order_stream", Cause.ORDER_INVERSION, (0, 1), comm=("a", "b"), match_seq=2),
    Hang("behind_compute", Cause.KERNEL_NOT_STARTED, (2,), (0, 1, 3), stage="not_started"),
    Hang("dead_channel", Cause.ALL_PRESENT_STUCK, (), (0, 1, 2, 3), stage="partly_stopped"),
    Hang("dead_nic", Cause.ALL_PRESENT_STUCK, (), (0, 1, 2, 3), stage="inside"),
    Hang("dead_nic", Cause.PEER_UNREACHABLE, (1,), (0, 2, 3), env=DEEP, stage="network"),
    Hang("dead_link", Cause.PEER_UNREACHABLE, (1, 2), (), match_seq=1, env=DEEP),
    Hang("killed", Cause.RANK_DEAD, (2,), (0, 1, 3)),
    Hang("blocked_launch", Cause.RANK_NOT_ENTERED, (1,), (0, 2, 3), releases=("2.27",)),
    Hang("blocked_launch", Cause.HOST_BLOCKED, (1,), (0, 2, 3), releases=API, stage="launch"),
    Hang(
        "p2p_cycle",
        Cause.P2P_CYCLE,
        (0, 1, 2, 3),
        match_seq=1,
        releases=(*SHIM, "2.30", "2.32"),
    ),
    Hang("open_group", Cause.RANK_NOT_ENTERED, (0,), (1, 2, 3), releases=("2.27",)),
    Hang("open_group", Cause.GROUP_MISUSE, (0,), (1, 2, 3), releases=API, stage="open_group"),
    Hang(
        "fan_missing",
        Cause.RANK_NOT_ENTERED,
        (7,),
        (0, 1, 2, 3, 4, 5, 6, 8, 9),
        match_seq=2,
        releases=("2.27",),
    ),
    Hang("host_stream", Cause.RANK_NOT_ENTERED, (3,), (0, 1, 2), match_seq=3),
    Hang("replay", Cause.RANK_NOT_ENTERED, (2,), (0, 1, 3), match_seq=9, releases=("2.27",)),
    Hang("replay", Cause.RANK_NOT_ENTERED, (2,), (0, 1, 3), releases=API),
    Hang("first_connect", Cause.RANK_NOT_ENTERED, (3,), (0, 1, 2), match_seq=1, releases=API),
    Hang("helper_launch", Cause.RANK_NOT_ENTERED, (1,), (0, 2, 3), releases=("2.27",)),
    Hang("helper_launch", Cause.HOST_BLOCKED, (1,), (0, 2, 3), releases=API, stage="launch"),
    Hang("stuck_connect", Cause.RANK_NOT_ENTERED, (1,), (0, 2, 3), releases=("2.27",)),
    Hang("stuck_connect", Cause.HOST_BLOCKED, (1,), (0, 2, 3), releases=API, stage="host"),
)
NO_HANGS = (
    "slow_rank", "idle", "unobservable_last", "lost_stops", "fan_slow", "graph_eager",
    "dark_after_host",
)  # fmt: skip

CASES = [
    pytest.param(hang, release, id="-".join([hang.scenario, *hang.env.values(), release]))
    for hang in HANGS
    for release in hang.releases
]


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Starts a scenario and gives its process and its spool, once every op in flight is overdue."""
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    started = []

    def start(scenario, release, **env):
        limits = {"COMMINSIGHT_OVERDUE_S": str(OVERDUE_S)} | env
        context = staged(tmp_path, f"hangs/{scenario}", release, **limits)
        started.append(context)
        process = context.__enter__()
        settled(process)
        wait_until_overdue(tmp_path / "boxes", OVERDUE_S)
        return process, tmp_path / "spool"

    yield start
    for context in started:
        context.__exit__(None, None, None)


def hang_of(spool):
    """The hang verdict of the report, or None."""
    found = [v for v in open_run(spool).report().verdicts if v.rule == "hang"]
    return found[0] if found else None


def check(hang, verdict):
    """The verdict says what the row says."""
    assert verdict is not None
    told = (verdict.cause, verdict.culprits, verdict.victims)
    assert told == (hang.cause, hang.culprits, hang.victims)
    assert verdict.first_bad_op.comm_label.split()[-1].partition("#")[0] in hang.comm
    assert verdict.first_bad_op.match_seq == hang.match_seq
    if hang.stage:
        assert stages(verdict)[f"stage.{hang.stage}"] >= set(hang.culprits or hang.victims)


def stages(verdict):
    """Ranks by how far their op came, as the evidence says."""
    told = [e.message.params for e in verdict.evidence if e.message.code == "evidence.stage"]
    return {params["stage"]: set(params["ranks"]) for params in told}


@pytest.mark.parametrize(("hang", "release"), CASES)
def test_a_hang_is_explained_while_it_lasts_and_after_its_end(hang, release, scene):
    process, spool = scene(hang.scenario, release, **hang.env)
    check(hang, hang_of(spool))
    boxes = spool.parent / "boxes"
    kill_all(process, boxes)
    check(hang, hang_of(spool))
    check(hang, hang_of(boxes))  # without its segments


@pytest.mark.parametrize("scenario", NO_HANGS)
@pytest.mark.parametrize("release", ["2.27", "2.28", "2.30", "2.32"])
def test_what_only_looks_like_a_hang_accuses_nobody(scenario, release, scene):
    process, spool = scene(scenario, release)
    assert not any(v.rule == "hang" for v in open_run(spool).report().verdicts)
    kill_all(process, spool.parent / "boxes")
    verdicts = open_run(spool).report().verdicts
    assert not any(v.culprits for v in verdicts if v.rule == "hang")


@pytest.mark.parametrize("release", API)
def test_fan_outs_say_whom_they_wait_for_and_accuse_nobody(release, scene):
    _, spool = scene("fan_missing", release)
    verdict = hang_of(spool)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    pending = [e.message.params for e in verdict.evidence if e.message.code == "evidence.pending"]
    assert [(p["peers"], p["ranks"]) for p in pending] == [([7], [0, 1, 2, 3, 4, 5, 6, 8, 9])]
    assert [a.params["rank"] for a in verdict.next_actions] == [7]


def test_what_the_mask_left_out_is_said(scene):
    _, spool = scene("dead_nic", "2.30")
    assert "missing.network_events" in {missing.code for missing in hang_of(spool).missing}
    assert hang_of(spool).culprits == ()


def test_one_end_of_a_dead_path_is_a_lead_and_not_a_verdict(scene):
    _, spool = scene("dead_nic", "2.32", **DEEP)
    assert hang_of(spool).confidence is Confidence.LOW


def test_the_command_line_tells_it_in_words(scene, capsys):
    _, spool = scene("behind_compute", "2.32")
    assert report.main([str(spool), "--fail-on", "any"]) == ExitCode.FINDING
    told = " ".join(capsys.readouterr().out.split())
    assert "Rank 2" in told
    assert "its kernel does not begin on the GPU" in told
