"""Damaged records make nobody slow: whatever is done to the records of a healthy run, no rank is
accused, and damage of a size that matters is named; a planted fault is right or not judged.

The whole line is real from the sessions on: engine, trace, measures, all rules, report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.model.ops import LossReason, OpFlag
from comminsight.model.tally import Tally
from comminsight.model.verdict import UNREMARKABLE, Cause, Verdict
from comminsight.pipeline.simulated import simulated_sessions
from comminsight.run import open_run, run_of_sessions
from comminsight.sim import (
    LateRank,
    SimLayout,
    SimRun,
    ddp_layout,
    fsdp2_layout,
    megatron_layout,
    moe_layout,
    simulate,
)
from tests.builders.run import write_run

STEPS = 20
LAYOUTS = {
    "ddp": ddp_layout(8),
    "fsdp2": fsdp2_layout(8),
    "tp pp dp": megatron_layout(2, 2, 2),
    "experts": moe_layout(8, 4),
}
TIMES = ("enqueue_ns", "start_ns", "end_ns")
DATA = {Cause.DATA_CORRUPT, Cause.DATA_INCOMPLETE}
Damage = Callable[[np.ndarray, np.random.Generator], None]


def moved(ratio_of_step: float, drift: float = 0.0) -> Damage:
    def damage(rows: np.ndarray, _: np.random.Generator) -> None:
        first_ns, last_ns = int(rows["start_ns"].min()), int(rows["start_ns"].max())
        shift_ns = round(ratio_of_step * (last_ns - first_ns) / STEPS)
        for name in TIMES:
            by_ns = shift_ns + (drift * (rows[name] - first_ns)).astype(np.int64)
            rows[name] = np.where(rows[name] > 0, rows[name] + by_ns, 0)

    return damage


def reversed_stamps(rows: np.ndarray, rng: np.random.Generator) -> None:
    some = rng.random(len(rows)) < 0.2
    start_ns, end_ns = rows["start_ns"].copy(), rows["end_ns"].copy()
    swapped = some & (end_ns > 0)
    rows["start_ns"], rows["end_ns"] = (
        np.where(swapped, end_ns, start_ns), np.where(swapped, start_ns, end_ns)
    )  # fmt: skip


def zero(name: str) -> Damage:
    def damage(rows: np.ndarray, rng: np.random.Generator) -> None:
        rows[name][rng.random(len(rows)) < 0.3] = 0

    return damage


def absurd(rows: np.ndarray, rng: np.random.Generator) -> None:
    rows["size_bytes"][rng.random(len(rows)) < 0.1] |= 1 << int(rng.integers(47, 62))


def flipped(rows: np.ndarray, rng: np.random.Generator) -> None:
    """A random bit of the stamps of some records, the sign left alone."""
    for name in ("start_ns", "end_ns"):
        some = (rng.random(len(rows)) < 0.05) & (rows[name] > 0)
        rows[name][some] ^= np.int64(1) << rng.integers(20, 45, int(some.sum()))


def noisy(rows: np.ndarray, rng: np.random.Generator) -> None:
    """Ends anywhere within the step."""
    step_ns = (int(rows["start_ns"].max()) - int(rows["start_ns"].min())) // STEPS
    rows["end_ns"] += rng.integers(-step_ns, step_ns, len(rows)) * (rows["end_ns"] > 0)
    rows["end_ns"] = np.maximum(rows["end_ns"], 1)


DAMAGES: dict[str, tuple[Damage, bool]] = {  # with whether it must be named
    "reversed": (reversed_stamps, True),
    "no begin": (zero("start_ns"), True),
    "no end": (zero("end_ns"), True),
    "absurd sizes": (absurd, True),
    "flipped bits": (flipped, True),
    "random ends": (noisy, True),
    "a little late": (moved(0.01), False),
    "late by a third": (moved(0.33), True),
    "early by a third": (moved(-0.33), True),
    "late by steps": (moved(3.0), True),
    "drift of 100 ppm": (moved(0.0, 1e-4), False),
    "drift of 1 %": (moved(0.0, 1e-2), True),
    "drift of 10 %": (moved(0.0, 0.1), True),
    "backward drift": (moved(0.0, -0.05), True),
}


@cache
def healthy(name: str, seed: int) -> SimRun:
    return simulate(LAYOUTS[name], steps=STEPS, seed=seed)


def damaged(run: SimRun, rank: int, damage: Damage, seed: int) -> tuple[SessionData, ...]:
    sessions = list(simulated_sessions(run))
    rows = sessions[rank].records.copy()
    damage(rows, np.random.default_rng(seed))
    sessions[rank] = replace(sessions[rank], records=rows)
    return tuple(sessions)


def verdicts_of(sessions: tuple[SessionData, ...]) -> tuple[Verdict, ...]:
    return run_of_sessions(sessions).report().verdicts


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_accuses_nobody_and_is_named(kind: str) -> None:
    damage, is_named = DAMAGES[kind]
    for seed, name in enumerate(LAYOUTS):
        run = healthy(name, seed)
        found = verdicts_of(damaged(run, (3 * seed + 1) % run.layout.world_size, damage, seed))
        assert not any(v.culprits for v in found), (name, found)
        assert {v.cause for v in found} <= UNREMARKABLE | DATA, (name, found)
        assert any(v.cause is Cause.DATA_CORRUPT for v in found) or not is_named, name


def late(layout: SimLayout, seed: int) -> SimRun:
    return simulate(layout, steps=STEPS, seed=seed, faults=[LateRank(2, extra_ns=15_000_000)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_straggler_in_damaged_records_is_right_or_not_judged(kind: str) -> None:
    run = late(LAYOUTS["ddp"], 5)
    for rank in (2, 6):
        found = verdicts_of(damaged(run, rank, DAMAGES[kind][0], rank))
        assert all(v.culprits in {(), (2,)} for v in found), found
        if any(v.cause is Cause.DATA_CORRUPT for v in found):
            assert not any(v.culprits for v in found), found
        else:
            assert found[0].culprits == (2,)


@pytest.mark.parametrize("name", LAYOUTS)
def test_healthy_records_say_nothing(name: str) -> None:
    assert [v.cause for v in verdicts_of(simulated_sessions(healthy(name, 11)))] == [Cause.HEALTHY]


def without(session: SessionData, lost: np.ndarray, **counts: int) -> SessionData:
    tally = Tally({**session.tally.as_dict(), **counts})
    return replace(session, records=session.records[~lost], tally=tally, complete_from_seq=0)


@pytest.mark.parametrize("rank", [0, 5])
def test_a_ring_that_was_overwritten_is_told_with_its_pattern(rank: int) -> None:
    """Every now and then a stretch is gone: neither an absent op nor a slow rank."""
    sessions = list(simulated_sessions(healthy("ddp", 2)))
    seq = sessions[rank].records["seq"]
    lost = (seq % 40 >= 20) & (seq > 20)
    n = int(lost.sum())
    sessions[rank] = without(sessions[rank], lost, ring_records_overwritten=n)
    found = verdicts_of(tuple(sessions))
    assert found[0].cause is Cause.DATA_INCOMPLETE
    told = {e.message.code: e.message.params for e in found[0].evidence}
    assert told["evidence.overwritten"] == {"ranks": [rank], "n": n}
    holes = told["evidence.seq_holes"]
    assert holes["rank"] == rank
    assert holes["longest"] == 20
    assert not any(v.culprits for v in found)


def test_a_filter_is_told_and_names_nobody() -> None:
    """One rank leaves out its small ops and counts them."""
    sessions = list(simulated_sessions(healthy("tp pp dp", 2)))
    rows = sessions[1].records
    small = rows["size_bytes"] <= np.median(rows["size_bytes"])
    kept = without(sessions[1], small)
    losses = kept.losses.copy()
    losses[0, LossReason.BELOW_MIN_SIZE] = int(small.sum())
    kept.records["seq"] = np.arange(1, len(kept.records) + 1)
    sessions[1] = replace(kept, losses=losses)
    found = verdicts_of(tuple(sessions))
    told = [v for v in found if v.cause is Cause.DATA_INCOMPLETE]
    assert [e.message.code for v in told for e in v.evidence] == ["evidence.filtered"]
    assert not any(v.culprits for v in found)


@pytest.mark.parametrize("ranks", [(3,), (0, 7)])
def test_ranks_whose_files_are_missing_are_told(ranks: tuple[int, ...], tmp_path: Path) -> None:
    write_run(tmp_path, healthy("ddp", 2))
    for rank in ranks:
        folder = tmp_path / "inspector_logs" / f"deadbeef-{4000 + rank}-77"
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    found = open_run(tmp_path).report().verdicts
    assert [v.cause for v in found] == [Cause.DATA_INCOMPLETE, Cause.NO_VERDICT]
    assert found[0].evidence[0].message.params == {"ranks": list(ranks), "n_ranks": len(ranks)}


@pytest.mark.parametrize("seed", range(6))
def test_one_flipped_bit_in_a_file_is_told_and_names_nobody(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    write_run(tmp_path, healthy("ddp", 2))
    rank = int(rng.integers(8))
    (path,) = (tmp_path / "inspector_logs" / f"deadbeef-{4000 + rank}-77").iterdir()
    data = bytearray(path.read_bytes())
    data[int(rng.integers(len(data) // 2, len(data) - 200))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))
    found = open_run(tmp_path).report().verdicts
    assert found[0].cause is Cause.DATA_CORRUPT
    assert found[0].evidence[0].message.params["ranks"] == [rank]
    assert not any(v.culprits for v in found)


def test_unseen_ends_are_no_damage() -> None:
    sessions = list(simulated_sessions(healthy("ddp", 2)))
    rows = sessions[4].records.copy()
    rows["end_ns"][::4] = 0
    rows["flags"][::4] |= np.uint16(OpFlag.END_UNSEEN)
    sessions[4] = replace(sessions[4], records=rows)
    assert not {v.cause for v in verdicts_of(tuple(sessions))} & DATA
