"""The straggler rule on hand-made measures: whom it names, since when, and when it stays silent."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from comminsight.diagnosis import codes
from comminsight.diagnosis.straggler import judge_straggler
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import Backend
from comminsight.model.topology import CommRole
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Coverage, Verdict
from tests.unit.diagnosis.events import comm
from tests.unit.diagnosis.tables import MS, coverage, late, quiet

COORDS = [f"tp{t} pp{p} dp{d}" for p in range(2) for d in range(2) for t in range(2)]
WORLD = comm(0, range(8), CommRole.GLOBAL)
DP = [comm(1 + i, pair) for i, pair in enumerate([(0, 2), (1, 3), (4, 6), (5, 7)])]


def judge(measures: StragglerMeasures, seen: Coverage | None = None) -> Verdict:
    return judge_straggler(measures, (WORLD, *DP), seen or coverage())


def said(verdict: Verdict, code: str) -> dict[str, object]:
    return next(dict(e.message.params) for e in verdict.evidence if e.message.code == code)


def test_nothing_planted_nobody_named() -> None:
    verdict = judge(quiet())
    assert (verdict.cause, verdict.culprits) == (Cause.HEALTHY, ())
    assert said(verdict, codes.NOTHING_PERSISTS)["n_steps"] == 30


@pytest.mark.parametrize(
    ("hidden", "missing"),
    [({"hidden_ratio": 0.3}, [codes.MISSING_WAITED_FOR]), ({"hidden_ratio": 0.01}, []),
     ({"untimed_ratio": 0.2}, [codes.MISSING_RUNS]), ({"untimed_ratio": 0.001}, [])],
)  # fmt: skip
def test_health_is_not_stated_where_waits_are_hidden(
    hidden: dict[str, float], missing: list[str]
) -> None:
    verdict = judge(replace(quiet(), **hidden))
    assert [entry.code for entry in verdict.missing] == missing
    assert verdict.cause is (Cause.NO_VERDICT if missing else Cause.HEALTHY)


def test_own_lateness_beside_fan_outs_is_named_all_the_same() -> None:
    """It is read from the rank's own work; where only calls were seen, work tells nothing."""
    slow = late(quiet(), 3, 20)
    assert judge(replace(slow, hidden_ratio=0.3)).culprits == (3,)
    assert judge(replace(slow, untimed_ratio=0.2)).cause is Cause.NO_VERDICT


def test_a_rank_that_is_late_since_a_step() -> None:
    verdict = judge(late(quiet(), 5, 20, slice(12, None)))
    assert (verdict.cause, verdict.culprits) == (Cause.COMPUTE_STRAGGLER, (5,))
    assert verdict.confidence is Confidence.HIGH
    assert (verdict.first_step, verdict.last_step) == (112, 129)
    assert verdict.victims == (0, 1, 2, 3, 4, 6, 7)
    assert verdict.measures["step_cost_ns"] == pytest.approx(20 * MS, rel=0.05)
    assert verdict.measures["step_before_ns"] == 100 * MS
    assert verdict.measures["step_after_ns"] == 120 * MS
    assert verdict.measures["step_cost_ratio"] == pytest.approx(20 / 120, rel=0.05)
    assert verdict.measures["explained_ratio"] > 0.8
    assert said(verdict, codes.ONSET)["step"] == 112
    assert said(verdict, codes.RECURS_SINCE) == {"step": 112, "n_hit": 18, "n_steps": 18}
    chain = {link.level: link.value for link in verdict.chain}
    assert (chain[ChainLevel.STEP], chain[ChainLevel.NODE]) == ("112-129", "node1")
    assert [action.code for action in verdict.next_actions] == [
        codes.PROFILE_RANK,
        codes.COMPARE_HOST,
    ]


def test_always_late_has_no_onset() -> None:
    verdict = judge(late(quiet(), 2, 8))
    assert verdict.culprits == (2,)
    assert verdict.measures["step_before_ns"] == pytest.approx(100 * MS, rel=0.02)
    assert said(verdict, codes.RECURS_ALWAYS)["n_hit"] == 30


def test_an_episode_that_ended_keeps_its_steps() -> None:
    verdict = judge(late(quiet(), 2, 30, slice(8, 18)))
    assert (verdict.culprits, verdict.first_step, verdict.last_step) == ((2,), 108, 117)


def test_now_and_then_is_said_with_low_confidence() -> None:
    verdict = judge(late(quiet(), 2, 40, list(range(3, 30, 5))))
    assert (verdict.culprits, verdict.confidence) == ((2,), Confidence.LOW)
    assert said(verdict, codes.RECURS_INTERMITTENTLY) == {"n_hit": 6, "n_steps": 30}


def test_two_late_ranks_do_not_hide_each_other() -> None:
    verdict = judge(late(late(quiet(), 2, 20), 6, 15))
    assert (verdict.cause, verdict.culprits) == (Cause.COMPUTE_STRAGGLER, (2, 6))


def test_t1_the_index_and_the_waits_do_not_decide() -> None:
    """Rank 7 has the highest index, rank 1 waits longest; the cost began at rank 4."""
    measures = late(quiet(), 4, 20)
    index = measures.index_pct.copy()
    index[:, 7] = 60.0
    waited = measures.waited_ns.copy()
    waited[:, 1] += 50 * MS
    verdict = judge(replace(measures, index_pct=index, waited_ns=waited))
    assert verdict.culprits == (4,)
    assert said(verdict, codes.INDEX_ELSEWHERE)["rank"] == 7
    assert verdict.measures["largest_index_pct"] == 60.0


@pytest.mark.parametrize("steps", [[3], [3, 4, 5], [2, 15, 28]])
def test_a_few_long_steps_are_no_straggler(steps: list[int]) -> None:
    assert judge(late(quiet(), 3, 80, steps)).culprits == ()


def test_a_lasting_but_small_cost_is_no_straggler() -> None:
    assert judge(late(quiet(), 3, 1.5)).cause is Cause.HEALTHY


def test_delay_hidden_by_slack_costs_nothing_and_names_nobody() -> None:
    measures = quiet()
    own = measures.own_delay_ns.copy()
    own[:, 3] += 30 * MS
    assert judge(replace(measures, own_delay_ns=own)).culprits == ()


def test_long_steps_by_different_ranks_in_turn_give_no_verdict() -> None:
    measures = quiet()
    for rank in range(8):
        measures = late(measures, rank, 30, list(range(rank, 30, 8)))
    verdict = judge(measures)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert said(verdict, codes.RECURS_ROTATING)["n_hit"] == 30
    assert verdict.missing[0].code == codes.MISSING_AGREEMENT


def test_a_stage_that_is_slow_as_a_whole_is_imbalance_and_not_a_straggler() -> None:
    measures = quiet(coords=COORDS)
    for rank in (4, 5, 6, 7):
        measures = late(measures, rank, 6)
    verdict = judge(measures)
    assert (verdict.cause, verdict.culprits) == (Cause.LOAD_IMBALANCE, (4, 5, 6, 7))
    assert said(verdict, codes.ALIKE)["place"] == "pp1"
    assert verdict.next_actions[0].params == {"place": "pp1"}


@pytest.mark.parametrize(
    ("coords", "place", "is_told"),
    [
        (COORDS, "pp1", True),  # 6 of the 70 fours are places
        (COORDS[:4], "tp1", False),  # 4 of the 6 pairs
        ([f"pp{r // 2} dp{r % 2}" for r in range(8)], "pp3", False),  # 4 of the 28 pairs
        ([f"pp{r // 2} dp{r % 2}" for r in range(16)], "pp3", True),  # 8 of the 120
        ([f"pp{r // 3} dp{r % 3}" for r in range(6)], "pp1", True),  # 2 of the 20 threes
    ],
)
def test_ranks_that_are_a_place_as_soon_by_chance_are_no_imbalance(
    coords: list[str], place: str, is_told: bool
) -> None:
    slow = [rank for rank, text in enumerate(coords) if place in text.split()]
    measures = quiet(n_ranks=len(coords), coords=coords)
    for rank in slow:
        measures = late(measures, rank, 6)
    world = comm(0, range(len(coords)), CommRole.GLOBAL)
    nccl = msgspec.structs.replace(world, backend=Backend.NCCL)
    verdict = judge_straggler(measures, (nccl,), coverage(len(coords)))
    told = (Cause.LOAD_IMBALANCE, tuple(slow)) if is_told else (Cause.NO_VERDICT, ())
    assert (verdict.cause, verdict.culprits) == told
    assert is_told or [m.code for m in verdict.missing] == ["missing.design"]


@pytest.mark.parametrize("backend", [Backend.GLOO, Backend.UNKNOWN])
def test_ranks_of_one_host_may_share_a_core(backend: Backend) -> None:
    """Four of eight that are slow together are told as a stage only where none shares a core."""
    measures = replace(quiet(coords=COORDS), hosts=("one",) * 8)
    for rank in (4, 5, 6, 7):
        measures = late(measures, rank, 6)
    for kind, cause in ((backend, Cause.NO_VERDICT), (Backend.NCCL, Cause.LOAD_IMBALANCE)):
        world = msgspec.structs.replace(WORLD, backend=kind)
        assert judge_straggler(measures, (world,), coverage()).cause is cause


def test_one_replica_that_is_slow_is_a_straggler_and_not_imbalance() -> None:
    verdict = judge(late(quiet(coords=COORDS), 5, 12))
    assert (verdict.cause, verdict.culprits) == (Cause.COMPUTE_STRAGGLER, (5,))


def test_a_slow_transfer_names_the_communicator_and_no_rank() -> None:
    measures = quiet(coords=COORDS)
    for rank in (4, 6):
        measures = late(measures, rank, 12, slice(10, None), is_transfer=True)
    verdict = judge(measures)
    assert (verdict.cause, verdict.culprits) == (Cause.SLOW_LINK, ())
    assert (verdict.comm_id, verdict.first_step) == (3, 110)
    assert verdict.victims == (4, 6)
    assert verdict.confidence is Confidence.LOW
    assert [entry.code for entry in verdict.missing] == [codes.MISSING_PORT]


def test_transfers_that_became_slow_for_everybody_are_no_link() -> None:
    measures = quiet(coords=COORDS)
    for rank in range(8):
        measures = late(measures, rank, 9, slice(10, None), is_transfer=True)
    verdict = judge(measures)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert [entry.code for entry in verdict.missing] == [codes.MISSING_COMMON_CAUSE]
    assert verdict.missing[0].params["step"] == 110


def test_work_and_transfer_alike_give_no_verdict() -> None:
    measures = late(late(quiet(), 3, 20), 3, 20, is_transfer=True)
    verdict = judge(measures)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert verdict.missing[0].params == {"ranks": [3]}


def lossy_coverage() -> Coverage:
    return coverage(records_read=900, records_lost=100)


def incomplete(measures: StragglerMeasures, n_steps: int) -> StragglerMeasures:
    complete = measures.is_complete.copy()
    complete[:n_steps, 1] = False
    return replace(measures, is_complete=complete)


LATE = late(quiet(), 3, 30)


@pytest.mark.parametrize(
    ("measures", "seen", "code"),
    [
        (late(quiet(7), 3, 30), coverage(), codes.MISSING_STEPS),
        (incomplete(LATE, 20), coverage(), codes.MISSING_COMPLETE_STEPS),
        (incomplete(LATE, 27), coverage(), codes.MISSING_STEPS),
        (LATE, coverage(9, ranks_missing=(8,)), codes.MISSING_RANKS),
        (LATE, lossy_coverage(), codes.MISSING_RECORDS),
        (replace(LATE, clock_error_ns=20 * MS), coverage(), codes.MISSING_CLOCK),
    ],
    ids=["few steps", "half incomplete", "few complete", "rank missing", "lossy", "clock"],
)
def test_t6_t15_t19_no_verdict_says_what_is_missing(
    measures: StragglerMeasures, seen: Coverage, code: str
) -> None:
    verdict = judge(measures, seen)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert [entry.code for entry in verdict.missing] == [code]
    assert verdict.confidence is Confidence.NONE


def test_a_stage_of_one_rank_has_nobody_to_be_compared_with() -> None:
    coords = [f"pp{stage}" for stage in range(8)]
    verdict = judge(quiet(coords=coords))
    assert (verdict.cause, verdict.missing[0].code) == (Cause.HEALTHY, codes.MISSING_REPLICAS)


def test_no_steps_at_all() -> None:
    empty = quiet(0)
    assert judge(empty).missing[0].params == {"used": 0, "needed": 8}


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_small_jobs(n_ranks: int) -> None:
    world = (comm(0, range(n_ranks)),)
    calm = judge_straggler(quiet(30, n_ranks), world, coverage(n_ranks))
    assert calm.culprits == ()
    shifted = late(quiet(30, n_ranks), n_ranks - 1, 40, slice(10, None))
    verdict = judge_straggler(shifted, world, coverage(n_ranks))
    assert verdict.culprits == (n_ranks - 1,)
    assert np.isfinite(list(verdict.measures.values())).all()


def test_slow_transfers_of_gloo_inside_one_machine_are_no_link() -> None:
    measures = quiet(coords=COORDS)
    for rank in (4, 6):
        measures = late(measures, rank, 12, slice(10, None), is_transfer=True)
    gloo = [msgspec.structs.replace(c, backend=Backend.GLOO) for c in (WORLD, *DP)]
    for hosts, cause in ((measures.hosts, Cause.SLOW_LINK), (("a",) * 8, Cause.NO_VERDICT)):
        verdict = judge_straggler(replace(measures, hosts=hosts), gloo, coverage())
        assert (verdict.cause, verdict.culprits) == (cause, ())


def test_two_ranks_that_are_bad_alike_by_chance_are_not_told_apart() -> None:
    noise = np.random.default_rng(4)
    measures = quiet()
    for rank in (3, 6):
        cost_ns = measures.step_cost_ns.copy()
        cost_ns[:, rank] = noise.exponential(9_000_000, len(cost_ns))
        own_ns = measures.own_delay_ns.copy()
        own_ns[:, rank] = cost_ns[:, rank]
        measures = replace(measures, step_cost_ns=cost_ns, own_delay_ns=own_ns)
    assert judge(measures).culprits in ((), (3, 6))
