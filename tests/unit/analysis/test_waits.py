import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.analysis import waits
from comminsight.analysis.waits import index_pct, numpy_sweep, pairs_of, wait_columns, waited_ns
from tests.unit.analysis.tables import AR, RECV, SEND, match

Event = tuple[int, int, int]  # rank, instance, start


def length(intervals: list[tuple[int, int]]) -> int:
    covered = set()
    for begin, end in intervals:
        covered.update(range(begin, end))
    return len(covered)


def naive_nets(events: list[Event]) -> dict[tuple[int, int], int]:
    """net[cause, victim] by the words of the definition, one nanosecond at a time."""
    members = defaultdict(list)
    for rank, instance, start in events:
        members[instance].append((rank, start))
    directed = defaultdict(list)
    for present in members.values():
        for (p, tp), (q, tq) in itertools.permutations(present, 2):
            if tp < tq:
                directed[q, p].append((tp, tq))
    nets = {}
    for cause, victim in directed:
        net = length(directed[cause, victim]) - length(directed.get((victim, cause), []))
        if net > 0:
            nets[cause, victim] = net
    return nets


@st.composite
def random_steps(draw: st.DrawFn) -> tuple[int, list[Event]]:
    """Nested and crossing communicators, ties, missing members; coarse times so that they meet."""
    n_ranks = draw(st.integers(2, 7))
    ranks = st.sets(st.integers(0, n_ranks - 1), min_size=1)
    groups = draw(st.lists(ranks, min_size=1, max_size=5))
    events = []
    for instance in range(draw(st.integers(1, 12))):
        present = [r for r in draw(st.sampled_from(groups)) if draw(st.integers(0, 9))]
        events += [(rank, instance, draw(st.integers(0, 60))) for rank in present]
    return n_ranks, events


def as_columns(events: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(events, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


@settings(max_examples=300, deadline=None)
@given(random_steps(), st.sampled_from([1, 5, 1 << 21]))
def test_sweep_is_the_definition(step: tuple[int, list[Event]], chunk: int) -> None:
    n_ranks, events = step
    nets = naive_nets(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waits, "_CHUNK_PAIRS", chunk)
        sums = numpy_sweep(*as_columns(events), n_ranks)
    for rank in range(n_ranks):
        own = [net for (cause, _), net in nets.items() if cause == rank]
        assert (sums.caused_ns[rank], sums.n_pairs[rank]) == (sum(own), len(own))


@settings(max_examples=100, deadline=None)
@given(random_steps())
def test_waited_is_the_union_over_partners(step: tuple[int, list[Event]]) -> None:
    n_ranks, events = step
    last = {i: max(t for _, j, t in events if j == i) for _, i, _ in events}
    expected = [
        length([(t, last[i]) for r, i, t in events if r == rank]) for rank in range(n_ranks)
    ]
    assert waited_ns(*as_columns(events), n_ranks).tolist() == expected


def test_overlapping_waits_of_a_pair_count_once() -> None:
    # rank 1 is late in two ops whose waits [0,10] and [4,12] overlap: 12, not 18
    sums = numpy_sweep(*as_columns([(0, 0, 0), (1, 0, 10), (0, 1, 4), (1, 1, 12)]), 2)
    assert sums.caused_ns.tolist() == [0, 12]


def test_directions_cancel_within_a_pair_but_not_across_pairs() -> None:
    # 1 delays 0 by 10, 0 delays 1 by 4, and 0 delays 2 by 6
    events = [(0, 0, 0), (1, 0, 10), (1, 1, 20), (0, 1, 24), (2, 2, 30), (0, 2, 36)]
    sums = numpy_sweep(*as_columns(events), 3)
    assert sums.caused_ns.tolist() == [6, 6, 0]
    assert sums.n_pairs.tolist() == [1, 1, 0]


def test_index_is_the_mean_over_positive_pairs_capped() -> None:
    events = [(0, 0, 0), (1, 0, 10), (2, 0, 40)]  # 2 delays 0 by 40, 1 by 30; 1 delays 0 by 10
    sums = numpy_sweep(*as_columns(events), 3)
    assert index_pct(sums, 100.0).tolist() == [0.0, 10.0, 35.0]
    assert index_pct(sums, 20.0).tolist() == [0.0, 50.0, 100.0]
    assert index_pct(sums, 0.0).tolist() == [0.0, 0.0, 0.0]


def test_a_world_of_unrelated_clocks_is_refused() -> None:
    with pytest.raises(ValueError, match="not one step on one clock"):
        numpy_sweep(*as_columns([(0, 0, 0), (1, 0, 1 << 61)]), 2)


def test_send_and_receive_wait_for_each_other() -> None:
    rows = [(0, 0, SEND, 1, 50, 60, 1), (1, 0, RECV, 1, 20, 60, 0)]
    assert numpy_sweep(*wait_columns(match(rows, 2, [0, 1])), 2).caused_ns.tolist() == [30, 0]


def test_pairs_name_partner_and_op_class() -> None:
    rows = [
        (0, 0, AR, 1, 0, 50), (1, 0, AR, 1, 40, 50), (2, 0, AR, 1, 10, 50),
        (1, 1, SEND, 1, 60, 90, 0), (0, 1, RECV, 1, 85, 90, 1),
    ]  # fmt: skip
    found = match(rows, 3, [0, 1, 2], [0, 1])
    of_zero = pairs_of(found, 0)
    assert [(p.rank, p.net_ns, p.parts) for p in of_zero.culprits] == [
        (1, 15, ((0, 1, 40),)),
        (2, 10, ((0, 1, 10),)),
    ]
    assert of_zero.victims == ()
    assert [(p.rank, p.net_ns) for p in pairs_of(found, 1).victims] == [(2, 30), (0, 15)]


def test_top_lists_never_change_the_index() -> None:
    n = 14
    rows = [(rank, 0, AR, 1, rank, n) for rank in range(n)]
    found = match(rows, n, range(n))
    before = numpy_sweep(*wait_columns(found), n)
    shown = pairs_of(found, n - 1).victims
    everyone = pairs_of(found, n - 1, top=n).victims
    after = numpy_sweep(*wait_columns(found), n)
    assert (len(shown), len(everyone)) == (10, n - 1)
    assert before.n_pairs[n - 1] == n - 1
    assert before.caused_ns.tolist() == after.caused_ns.tolist()
    assert before.caused_ns[n - 1] == sum(pair.net_ns for pair in everyone)


def test_clocks_months_apart_are_no_span_of_one_step():
    year_ns = 365 * 86_400 * 10**9
    rows = [(0, 0, AR, 1, 10, 40), (1, 0, AR, 1, 30, 40)]
    rows += [(2, 1, AR, 1, year_ns + 5, year_ns + 40), (3, 1, AR, 1, year_ns + 30, year_ns + 40)]
    found = match(rows, 4, (0, 1), (2, 3), clock_domain=[0, 0, 1, 1])
    sums = numpy_sweep(*wait_columns(found), 4)
    assert sums.caused_ns.tolist() == [0, 20, 0, 25]
    assert waited_ns(*wait_columns(found), 4).tolist() == [20, 0, 25, 0]
