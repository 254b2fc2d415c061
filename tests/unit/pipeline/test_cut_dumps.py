"""Dumps whose oldest entry is in flight: an older call, now overwritten, may be what holds all."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.model.verdict import Cause, Confidence
from comminsight.pipeline import flight_recorder
from comminsight.pipeline.flight_recorder import FlightReport, diagnose_flight_recorder
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps

WORLD, PAIR = Call("0", "all_reduce"), Call("1", "all_reduce")


def held_pair(folder: Path, *, ring: int, n_pairs: int = 6) -> FlightReport:
    """Rank 3 stalls before the fourth call of all; ranks 0 and 1 queue calls of their own behind
    it, and rank 2 left no dump."""
    groups = {"0": Group("default_pg", (0, 1, 2, 3)), "1": Group("pair", (0, 1))}
    programs = {rank: [WORLD] * 4 + [PAIR] * n_pairs * (rank < 2) for rank in range(4)}
    job = FlightJob(groups, programs, host_stops={3: 3}, run_ahead=20).play()
    return diagnose_flight_recorder(write_dumps(folder, job, ranks=(0, 1, 3), ring=ring))


@pytest.mark.parametrize("ring", [100, 8])
def test_with_the_call_that_holds_the_others_its_absent_rank_is_named(
    ring: int, tmp_path: Path
) -> None:
    verdict = held_pair(tmp_path, ring=ring).verdict
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))


@pytest.mark.parametrize("ring", [6, 2])
def test_without_it_no_transfer_is_said_to_stand_still(
    ring: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = held_pair(tmp_path, ring=ring).verdict
    assert verdict.cause is Cause.NO_VERDICT
    assert "missing.unseen_call" in {said.code for said in verdict.missing}
    monkeypatch.setattr(flight_recorder, "_cut_while_open", lambda _: frozenset())
    assert held_pair(tmp_path, ring=ring).verdict.cause is Cause.ALL_PRESENT_STUCK


def test_a_stand_still_that_is_taken_for_granted_is_not_of_high_confidence(tmp_path: Path) -> None:
    groups = {"0": Group("default_pg", (0, 1))}
    job = FlightJob(groups, {0: [WORLD] * 3, 1: [WORLD] * 3}, dead={(0, 2), (1, 2)}).play()
    verdict = diagnose_flight_recorder(write_dumps(tmp_path, job)).verdict
    assert verdict.cause is Cause.ALL_PRESENT_STUCK
    assert verdict.confidence is Confidence.MEDIUM
