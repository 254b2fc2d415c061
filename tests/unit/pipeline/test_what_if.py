"""What-if of simulated runs: which parts are tried, how they are named, what is missing."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.diagnosis.what_if import NO_CLOCK
from comminsight.model.trace import ClockOffsets, RunTrace
from comminsight.model.verdict import Coverage
from comminsight.model.what_if import PartKind, WhatIfReport, WhatIfRow
from comminsight.pipeline import what_if as module
from comminsight.pipeline.what_if import BARRIERS, NO_STAGES, SAMPLED, UNEVEN, chosen_steps, what_if
from comminsight.sim import LateRank, SlowLink, ddp_layout, megatron_layout, run_trace, simulate

MS = 1_000_000
LAYOUT = dataclasses.replace(megatron_layout(2, 2, 4), ranks_per_node=4)


def report_of(trace: RunTrace) -> WhatIfReport:
    seen = Coverage(ranks_expected=trace.world_size, ranks_seen=trace.world_size)
    return what_if(trace, align_steps(trace), seen, run_id="r")


@cache
def report() -> WhatIfReport:
    faults = [LateRank(5, 15 * MS), SlowLink("9", 8.0)]
    return report_of(run_trace(simulate(LAYOUT, steps=20, seed=1, faults=faults)))


def rows(kind: PartKind) -> dict[str, WhatIfRow]:
    return {row.name or str(row.ranks): row for row in report().rows if row.kind is kind}


def test_the_slow_rank_and_the_slow_group_gain_and_nobody_else() -> None:
    ranks, links = rows(PartKind.RANK), rows(PartKind.LINK)
    assert next(iter(ranks)) == "(5,)"
    assert ranks["(5,)"].expected_ns > 5 * MS
    assert max(row.expected_ns for name, row in ranks.items() if name != "(5,)") < MS
    slow = next(iter(links.values()))
    assert (slow.name, slow.sender, slow.ranks) == ("DP mesh_dp#9", -1, (0, 2, 4, 6))
    assert slow.expected_ns > 30 * MS
    assert sorted(row.expected_ns for row in links.values())[-2] < MS


def test_nodes_stages_and_kinds_of_ops_are_all_there() -> None:
    assert set(rows(PartKind.NODE)) == {f"node{n}" for n in range(4)}
    assert rows(PartKind.NODE)["node1"].ranks == (4, 5, 6, 7)
    assert {name: row.ranks for name, row in rows(PartKind.STAGE).items()} == {
        "0": tuple(range(8)), "1": tuple(range(8, 16)),
    }  # fmt: skip
    assert {"DP all_reduce", "TP all_reduce", "PP send", "PP recv"} <= set(rows(PartKind.OP_CLASS))


def test_everything_gains_at_least_what_one_part_does() -> None:
    (whole,) = (row for row in report().rows if row.kind is PartKind.ALL)
    for row in report().rows:
        assert 0 <= row.low_ns <= row.expected_ns <= row.high_ns < report().step_ns
        assert row.expected_ns <= whole.expected_ns
    assert (report().n_steps, report().n_steps_left_out) == (19, 0)


def test_a_link_between_two_is_named_by_its_ends() -> None:
    fault = SlowLink("mesh_pp", 60.0, pair=(2, 4))
    found = report_of(
        run_trace(simulate(megatron_layout(1, 4, 2), steps=16, seed=1, faults=[fault]))
    )
    first = next(row for row in found.rows if row.kind is PartKind.LINK)
    assert (first.sender, first.receiver, first.ranks) == (2, 4, (2, 4))
    assert first.expected_ns > 2 * MS


def test_what_cannot_be_compared_is_said() -> None:
    found = report_of(run_trace(simulate(megatron_layout(1, 4, 1), steps=16, seed=1)))
    missing = {message.code: message.params for message in found.missing}
    assert missing[UNEVEN]["ranks"] == [0, 3]  # one replica; the two middle stages do the same
    told = {row.ranks: row.cannot_tell for row in found.rows if row.kind is PartKind.RANK}
    assert {ranks for ranks, reason in told.items() if reason} == {(0,), (3,)}
    assert BARRIERS not in missing


def test_a_node_that_holds_a_whole_stage_has_no_peers() -> None:
    layout = dataclasses.replace(megatron_layout(2, 2, 2), ranks_per_node=4)
    faults = [LateRank(rank, 20 * MS) for rank in range(4)]
    found = report_of(run_trace(simulate(layout, steps=16, seed=1, faults=faults)))
    nodes = [row for row in found.rows if row.kind is PartKind.NODE]
    assert [row.cannot_tell is not None for row in nodes] == [True, True]


def test_without_stages_or_nodes_none_are_tried() -> None:
    found = report_of(run_trace(simulate(ddp_layout(4), steps=12, seed=1)))
    assert not {row.kind for row in found.rows} & {PartKind.NODE, PartKind.STAGE}
    assert NO_STAGES in {message.code for message in found.missing}


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_too_few_steps_say_nothing(steps: int) -> None:
    trace = run_trace(simulate(ddp_layout(4), steps=max(steps, 1), seed=1))
    if not steps:
        trace = dataclasses.replace(trace, steps=dict.fromkeys(trace.steps, ()))
    found = report_of(trace)
    assert all(row.cannot_tell is not None for row in found.rows)


def test_many_steps_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 16)
    trace = run_trace(simulate(ddp_layout(2), steps=60, seed=1))
    chosen = [step.step for step in chosen_steps(align_steps(trace), 2)]
    assert chosen == [*range(1, 9), *range(52, 60)]
    assert SAMPLED in {message.code for message in report_of(trace).missing}


def with_clock_error(trace: RunTrace, error_ns: int, *, n_joined: int = 99) -> RunTrace:
    boots = list(dict.fromkeys(rank.session.boot_id for rank in trace.ranks))[:n_joined]
    errors = {boot: error_ns if n else 0 for n, boot in enumerate(boots)}
    known = {boot: trace.clocks.offset_ns[boot] for boot in boots}
    return dataclasses.replace(trace, clocks=ClockOffsets(known, errors))


@cache
def played() -> RunTrace:
    return run_trace(simulate(LAYOUT, steps=10, seed=1, faults=[LateRank(5, 15 * MS)]))


@pytest.mark.parametrize("error_ns", [0, 1_000, MS, 20 * MS])
def test_bounds_grow_with_what_the_clocks_of_the_nodes_leave_open(error_ns: int) -> None:
    exact = report_of(with_clock_error(played(), 0))
    found = report_of(with_clock_error(played(), error_ns))
    apart_ns = 2 * error_ns  # two nodes, each within it of the first
    assert [(row.kind, row.ranks) for row in found.rows] == [
        (row.kind, row.ranks) for row in exact.rows
    ]
    for row, before in zip(found.rows, exact.rows, strict=True):
        assert row.low_ns == max(0, before.low_ns - apart_ns)
        assert row.high_ns == max(before.high_ns, min(before.high_ns + apart_ns, found.step_ns))


def test_nothing_is_told_where_nothing_joins_the_clocks() -> None:
    found = report_of(with_clock_error(played(), 0, n_joined=2))
    told = {row.cannot_tell.code for row in found.rows if row.cannot_tell is not None}
    assert all(row.cannot_tell is not None for row in found.rows)
    assert NO_CLOCK in told
    assert all((row.low_ns, row.high_ns) == (0, found.step_ns) for row in found.rows)
