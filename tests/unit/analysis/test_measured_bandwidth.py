"""Bandwidth of simulated runs against what the simulation gave each link."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measured_bandwidth import run_bandwidth
from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.ops import Algorithm, Op, Protocol
from comminsight.sim import LateRank, SlowLink, megatron_layout, run_trace, simulate
from comminsight.sim.faults import Fault

LAYOUT = replace(megatron_layout(2, 2, 4), ranks_per_node=4)


def rows_of(*faults: Fault, steps: int = 12) -> tuple[BandwidthRow, ...]:
    trace = run_trace(simulate(LAYOUT, steps=steps, seed=3, faults=faults))
    return run_bandwidth(trace, align_steps(trace))


def expected_gbs(row: BandwidthRow) -> float:
    """By the cost model of the simulation: a startup per doubling of the ranks, then the link."""
    n = len(row.ranks)
    rate = LAYOUT.intra_gbs if len(row.hosts) == 1 else LAYOUT.inter_gbs
    factor = (2 if row.op == Op.ALL_REDUCE else 1) * (n - 1) / n if n > 2 else 1.0
    startup_ns = LAYOUT.alpha_ns * max(1, (n - 1).bit_length())
    return row.size_bytes / (startup_ns + factor * row.size_bytes / rate) * bus_factor(row.op, n)


def test_the_bandwidth_is_that_of_the_link() -> None:
    rows = rows_of()
    assert {(row.op, len(row.ranks)) for row in rows} >= {(Op.ALL_REDUCE, 4), (Op.ALL_REDUCE, 2)}
    for row in rows:
        assert row.busbw_gbs == pytest.approx(expected_gbs(row), rel=0.15)
        assert 0 < row.low_gbs <= row.busbw_gbs <= row.high_gbs


def test_waiting_for_a_late_rank_is_no_transfer() -> None:
    calm = {(row.op, row.size_bytes, row.ranks): row.busbw_gbs for row in rows_of()}
    for row in rows_of(LateRank(rank=5, extra_ns=50_000_000)):
        assert row.busbw_gbs == pytest.approx(calm[row.op, row.size_bytes, row.ranks], rel=0.15)


def test_a_slow_group_is_slow_by_its_factor_and_no_other_is() -> None:
    run = simulate(LAYOUT, steps=1, seed=3)
    slow = next(group for group in run.groups if group.desc == "mesh_dp")
    for row in rows_of(SlowLink(slow.name, 4.0)):
        factor = 4.0 if row.ranks == slow.members else 1.0
        assert row.busbw_gbs == pytest.approx(expected_gbs(row) / factor, rel=0.15)


def test_rows_stand_in_windows_of_steps() -> None:
    rows = rows_of(steps=40)
    windows = sorted({(row.first_step, row.last_step) for row in rows})
    assert len(windows) == 8
    assert all(last - first == 4 for first, last in windows)


def test_algorithms_stand_apart() -> None:
    trace = run_trace(simulate(LAYOUT, steps=10, seed=3))
    for rank in trace.ranks:
        rank.ops["algo"] = np.where(rank.ops["match_seq"] % 2, Algorithm.RING, Algorithm.TREE)
        rank.ops["proto"] = np.where(rank.ops["match_seq"] % 2, Protocol.SIMPLE, Protocol.UNKNOWN)
    rows = run_bandwidth(trace, align_steps(trace))
    assert {(row.algorithm, row.protocol) for row in rows} == {("RING", "SIMPLE"), ("TREE", "")}
