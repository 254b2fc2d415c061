"""Steps of wide jobs (128 to 1,024 ranks) against the truth of the simulation.

Jitter, clocks seconds apart. Clean input: no step is fused or split, and each begins and ends where
it truly does, to 0.1 % of its length. 1 % of the records lost, some twice, some far too late: at
least 99.5 % of the found steps have their number after calibration. *off* are steps that miss no
record and whose bounds are wrong all the same. One layout per width in CI, a sample of its ranks;
all of them with ``COMMINSIGHT_FULL=1``. ``pytest -s`` shows the table.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from comminsight.sim import (
    Clocks,
    Jitter,
    LostRecords,
    SimLayout,
    SimRank,
    SimRun,
    ddp_accumulated_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    serving_ep_layout,
    simulate,
    zero_layout,
)
from comminsight.sim.cluster import RUN_START_MONO_NS
from comminsight.sim.program import BETWEEN_STEPS, PHASES
from tests.laws.test_calibration_law import Numbered, calibrated, disturbed, picked

IS_FULL = os.environ.get("COMMINSIGHT_FULL") == "1"
MAX_RANKS = 48 if IS_FULL else 32  # looked at, of all that run
STEPS = 12 if IS_FULL else 8
STRIDE = 37  # prime to the widths: the sample has every stage and every tensor parallel rank
JITTER = Jitter(sigma=0.15, hiccup_rate=0.02, rank_sigma=0.05, transfer_sigma=0.2)
CLOCKS = Clocks(spread_ns=3_000_000_000, drift_ppm=20.0)
MAX_ERROR = 0.001  # of the step


def grown(layout: SimLayout) -> SimLayout:
    """A model that grows with the job: each rank's share of a gather stays one."""
    return replace(layout, bucket_bytes=layout.bucket_bytes * layout.world_size // 32)


LAYOUTS: dict[str, tuple[SimLayout, ...]] = {
    "ddp": tuple(ddp_accumulated_layout(n) for n in (128, 256, 512, 1024)),
    "fsdp1": tuple(fsdp1_layout(n) for n in (128, 256, 512, 1024)),
    "fsdp2": tuple(fsdp2_accumulated_layout(n) for n in (128, 256, 512, 1024)),
    "zero1": tuple(grown(zero_layout(1, n)) for n in (128, 256, 512, 1024)),
    "zero3": tuple(grown(zero_layout(3, n)) for n in (128, 256, 512, 1024)),
    "tp pp dp": tuple(megatron_layout(8, 4, n // 32) for n in (128, 256, 512, 1024)),
    "megatron": tuple(
        megatron_core_layout(4, 4, n // 16, has_dist_opt=True) for n in (128, 256, 512, 1024)
    ),
    "interleaved": tuple(
        megatron_core_layout(4, 8, n // 32, microbatches=8, chunks=2) for n in (128, 256, 512, 1024)
    ),
    "moe": tuple(moe_layout(n, 8) for n in (128, 256, 512, 1024)),
    "serving ep": tuple(serving_ep_layout(8, n // 8) for n in (128, 256, 512, 1024)),
}
CI = {("zero3", 128), ("ddp", 256), ("megatron", 512), ("tp pp dp", 1024)}
ALL = {
    f"{name} {layout.world_size}": (name, layout)
    for name, layouts in LAYOUTS.items()
    for layout in layouts
    if IS_FULL or (name, layout.world_size) in CI
}
HAS_TAIL = {"ddp"}  # the loss that a DDP job reduces lies between its steps
HEADER = (
    f"\n{'layout':18}{'loss':>6}{'ranks':>7}{'found':>7}{'true':>7}{'fused':>7}{'split':>7}"
    f"{'right %':>9}{'of true %':>11}{'error %':>10}{'off':>6}"
)


@dataclass(frozen=True)
class Truth:
    """What a found step is compared with: of one rank, (start, end) of each true step."""

    start_ns: np.ndarray
    end_ns: np.ndarray


def truth_of(rank: SimRank) -> Truth:
    """Begin of the first and end of the last op of each step, on the rank's clock."""
    log = rank.log
    is_inside = ~np.array([phase in BETWEEN_STEPS for phase in PHASES])[log.phases]
    steps = log.steps[is_inside]
    firsts = np.flatnonzero(np.r_[True, steps[1:] != steps[:-1]])
    start_ns = np.minimum.reduceat(log.start_ns[is_inside], firsts)
    end_ns = np.maximum.reduceat(log.end_ns[is_inside], firsts)
    return Truth(*(RUN_START_MONO_NS + rank.clock.local_ns(ns) for ns in (start_ns, end_ns)))


@dataclass
class Row:
    """One line of the table."""

    n_found: int
    n_true: int
    n_fused: int
    n_split: int
    n_right: int
    n_true_right: int
    error: float  # of the step, the largest of those that are said to be complete
    n_complete: int
    n_off: int  # of these, by more than ``MAX_ERROR``

    def line(self, name: str, loss: str, n_ranks: int) -> str:
        right, of_true = 100 * self.n_right / self.n_found, 100 * self.n_true_right / self.n_true
        return (
            f"{name:18}{loss:>6}{n_ranks:7}{self.n_found:7}{self.n_true:7}{self.n_fused:7}"
            f"{self.n_split:7}{right:9.2f}{of_true:11.2f}{100 * self.error:10.4f}"
            f"{self.n_off:6} of {self.n_complete}"
        )


def compared(run: SimRun, found: list[Numbered], *, has_tail: bool) -> Row:
    truths = {rank.session.global_rank: truth_of(rank) for rank in run.ranks}
    begun = Counter((one.rank.session.global_rank, one.first) for one in found)
    right = {(one.rank.session.global_rank, one.number) for one in found if one.is_right}
    errors = [
        error_of(one, truths[one.rank.session.global_rank], has_tail=has_tail)
        for one in found
        if one.step.coverage_complete
    ]
    return Row(
        n_found=len(found),
        n_true=sum(len(truth.start_ns) for truth in truths.values()),
        n_fused=sum(one.last > one.first for one in found),
        n_split=sum(n - 1 for n in begun.values()),
        n_right=sum(one.is_right for one in found),
        n_true_right=len(right),
        error=max(errors, default=0.0),
        n_complete=len(errors),
        n_off=sum(error > MAX_ERROR for error in errors),
    )


def error_of(one: Numbered, truth: Truth, *, has_tail: bool) -> float:
    """How far the bounds of a step lie from the true ones at most, of its true length."""
    start_ns, end_ns = (int(ns[one.first]) for ns in (truth.start_ns, truth.end_ns))
    apart = [abs(one.step.start_ns - start_ns)]
    apart += [] if has_tail else [abs(one.step.end_ns - end_ns)]
    return max(apart) / (end_ns - start_ns)


@pytest.mark.parametrize("case", ALL)
def test_no_step_of_a_clean_recording_is_fused_split_or_off(case: str) -> None:
    name, layout = ALL[case]
    whole = simulate(layout, steps=STEPS, seed=9, jitter=JITTER, clocks=CLOCKS)
    run, sessions = picked(whole, MAX_RANKS, STRIDE)
    row = compared(run, list(calibrated(run, sessions)), has_tail=name in HAS_TAIL)
    print(f"{HEADER}\n{row.line(case, '0', len(run.ranks))}")
    assert (row.n_fused, row.n_split, row.n_right) == (0, 0, row.n_found)
    assert row.n_found >= row.n_true - len(run.ranks)  # a last step may not be proved
    assert (row.n_complete, row.error <= MAX_ERROR) == (row.n_found, True)


@pytest.mark.parametrize("case", ALL)
def test_with_one_record_in_a_hundred_lost_nearly_every_found_step_has_its_number(
    case: str,
) -> None:
    name, layout = ALL[case]
    whole = simulate(
        layout, steps=2 * STEPS, seed=9, jitter=JITTER, clocks=CLOCKS,
        faults=[LostRecords(fraction=0.01)],
    )  # fmt: skip
    run, clean = picked(whole, MAX_RANKS, STRIDE)
    sessions = tuple(disturbed(session, n) for n, session in enumerate(clean))
    row = compared(run, list(calibrated(run, sessions)), has_tail=name in HAS_TAIL)
    print(f"{HEADER}\n{row.line(case, '1 %', len(run.ranks))}")
    assert row.n_right >= 0.995 * row.n_found
    assert row.n_found >= 0.7 * row.n_true
