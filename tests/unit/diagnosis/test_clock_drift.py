"""Clocks that drift apart are told, with what that costs; nobody is accused for it."""

from __future__ import annotations

import dataclasses

import pytest

from comminsight.analysis.clock import estimate_clocks
from comminsight.analysis.clock_drift import clock_drifts
from comminsight.diagnosis.clock_drift import CLOCK_DRIFT, clock_drift_notes
from comminsight.model.trace import RunTrace
from comminsight.sim import Clocks, Jitter, ddp_layout, megatron_layout, run_trace, simulate
from comminsight.sim.layout import SimLayout


def played(drift_ppm: float, *, layout: SimLayout | None = None, steps: int = 40) -> RunTrace:
    made = layout or dataclasses.replace(ddp_layout(4), ranks_per_node=2)
    trace = run_trace(simulate(made, steps=steps, seed=5, clocks=Clocks(drift_ppm=drift_ppm)))
    return dataclasses.replace(trace, clocks=estimate_clocks(trace.ranks))


@pytest.mark.parametrize("drift_ppm", [100.0, 300.0, 900.0])
@pytest.mark.parametrize("layout", [None, megatron_layout(2, 1, 8)])
def test_a_drift_is_told_with_its_size(drift_ppm: float, layout: SimLayout | None) -> None:
    trace = played(drift_ppm, layout=layout)
    (note,) = clock_drift_notes(trace)
    (drift,) = clock_drifts(trace)
    assert (note.code, note.params["node"]) == (CLOCK_DRIFT, drift.host)
    assert 0 < abs(drift.line.ratio) <= drift_ppm * 1.1e-6
    shift_ns = int(str(note.params["shift_ns"]))
    assert shift_ns == pytest.approx(abs(drift.line.ratio) * drift.span_ns, rel=0.01)
    assert int(str(note.params["error_ns"])) >= shift_ns / 2  # so far off is the one offset


@pytest.mark.parametrize(
    "trace",
    [
        played(0.0),
        played(0.0, layout=megatron_layout(2, 1, 8)),
        played(200.0, layout=ddp_layout(4)),  # one node, one clock
        played(200.0, steps=1),  # too few to see a line
        run_trace(
            simulate(
                dataclasses.replace(ddp_layout(4), ranks_per_node=2), steps=40, seed=5,
                jitter=Jitter(hiccup_rate=0.05),
            )
        ),
    ],
)  # fmt: skip
def test_noise_and_one_clock_are_no_drift(trace: RunTrace) -> None:
    assert list(clock_drift_notes(trace)) == []
