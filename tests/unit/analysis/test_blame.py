import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comminsight.analysis import blame as blame_module
from comminsight.analysis.batches import stack_steps
from comminsight.analysis.blame import Blame, blame, n_candidates
from comminsight.analysis.normal import transfer_excess_ns, work_excess_ns
from comminsight.analysis.program import UNKNOWN_NS, StepProgram, step_program
from comminsight.analysis.replay import build_graph, replay
from comminsight.model.ops import Op, RecordKind
from tests.unit.analysis.tables import AR, RECV, SEND, Row, communicators, match

STEP = 10_000


def program(
    rows: list[Row], n_ranks: int, *members: list[int], **overrides: list[int]
) -> StepProgram:
    found = match(rows, n_ranks, *members, **overrides)
    entry = np.full(n_ranks, UNKNOWN_NS)
    return step_program(found, entry, communicators(*members), n_ranks)


def shifted(rows: list[Row], by: int) -> list[Row]:
    return [(*row[:4], row[4] + by, row[5] + by, *row[6:]) for row in rows]  # type: ignore[misc]


def judged(steps: list[list[Row]], n_ranks: int, *members: list[int]) -> Blame:
    programs = [program(shifted(rows, i * STEP), n_ranks, *members) for i, rows in enumerate(steps)]
    return blame(programs, n_ranks)


def all_reduce(work: list[int], begin: int, number: int) -> list[Row]:
    """Every rank computes ``work[rank]`` from ``begin``, then an all-reduce of 10."""
    end = begin + max(work) + 10
    return [(rank, 0, AR, number, begin + own, end) for rank, own in enumerate(work)]


def test_the_late_rank_and_not_those_who_wait() -> None:
    healthy = all_reduce([0, 0, 0], 0, 1) + all_reduce([50, 50, 50], 10, 2)
    slow = all_reduce([0, 0, 0], 0, 1) + all_reduce([50, 90, 50], 10, 2)
    result = judged([healthy, healthy, healthy, slow], 3, [0, 1, 2])
    assert result.own_delay_ns.tolist() == [[0, 0, 0]] * 3 + [[0, 40, 0]]
    assert result.step_cost_ns.tolist() == [[0, 0, 0]] * 3 + [[0, 40, 0]]
    assert result.transfer_delay_ns.max() == result.passed_on_ns.max() == 0


def test_a_rank_that_is_always_slow_is_measured_by_its_peers() -> None:
    slow = all_reduce([0, 0, 0], 0, 1) + all_reduce([50, 90, 50], 10, 2)
    assert judged([slow] * 4, 3, [0, 1, 2]).step_cost_ns[:, 1].tolist() == [40] * 4


def test_a_step_that_is_heavy_for_all_blames_nobody() -> None:
    light = all_reduce([0, 0], 0, 1) + all_reduce([50, 50], 10, 2)
    heavy = all_reduce([0, 0], 0, 1) + all_reduce([90, 90], 10, 2)
    assert judged([light, light, light, heavy], 2, [0, 1]).step_cost_ns.max() == 0


def pipeline(first: int, middle: int, last: int) -> list[Row]:
    """Three stages hand one microbatch on; each works, then sends (transfer 1)."""
    a = first
    b = a + 1 + middle
    return [
        (0, 0, SEND, 1, a, a + 1, 1), (1, 0, RECV, 1, 0, a + 1, 0),
        (1, 0, SEND, 1, b, b + 1, 2), (2, 0, RECV, 1, 0, b + 1, 1),
        (2, 1, AR, 1, b + 1 + last, b + 2 + last),
        (0, 1, AR, 1, a + 1, b + 2 + last), (1, 1, AR, 1, b + 1, b + 2 + last),
    ]  # fmt: skip


def test_delay_is_followed_over_two_hops() -> None:
    healthy, slow = pipeline(30, 40, 20), pipeline(90, 40, 20)
    result = judged([healthy] * 3 + [slow], 3, [0, 1, 2], [0, 1, 2])
    assert result.own_delay_ns[3].tolist() == [60, 0, 0]
    assert result.step_cost_ns[3].tolist() == [60, 0, 0]
    assert result.passed_on_ns[3, 0] == 0
    assert result.passed_on_ns[3, 1] == 60  # stage 1 made stage 2 wait with what it inherited


def test_stages_of_unequal_weight_are_not_blamed() -> None:
    assert judged([pipeline(30, 200, 20)] * 4, 3, [0, 1, 2], [0, 1, 2]).step_cost_ns.max() == 0


def test_a_slow_transfer_is_the_fault_of_those_in_it() -> None:
    def step(transfer: int) -> list[Row]:
        first = [(r, 0, AR, 1, 0, 10) for r in range(2)]
        second = [(r, 1, AR, 1, 0, 10 + transfer) for r in (2, 3)]
        final = [(r, 2, AR, 1, [10, 10, 10 + transfer, 10 + transfer][r], 30 + transfer)
                 for r in range(4)]  # fmt: skip
        return [*first, *second, *final]

    result = judged([step(0)] * 3 + [step(70)], 4, [0, 1], [2, 3], [0, 1, 2, 3])
    assert result.own_delay_ns.max() == 0
    assert result.transfer_delay_ns[3].tolist() == [0, 0, 70, 70]
    assert result.step_cost_ns[3].tolist() == [0, 0, 70, 70]


def test_two_equally_late_ranks_share_the_cost() -> None:
    healthy = all_reduce([0] * 5, 0, 1) + all_reduce([50] * 5, 10, 2)
    slow = all_reduce([0] * 5, 0, 1) + all_reduce([50, 90, 90, 50, 50], 10, 2)
    cost = judged([healthy] * 3 + [slow], 5, [0, 1, 2, 3, 4]).step_cost_ns[3]
    assert cost.tolist() == [0, 20, 20, 0, 0]


def test_an_overlapped_bucket_is_not_waited_for_but_the_last_wait_is() -> None:
    """Buckets 1, 2 asynchronous under 100 of work, then a blocking op after both have ended."""

    def step(late: int, transfer: int) -> list[Row]:
        rows: list[Row] = []
        starts = [[20, 20 + late], [120, 120 + late]]
        ends = [max(own) + transfer for own in starts]
        for rank in range(2):
            rows += [(rank, 0, AR, n + 1, starts[n][rank], ends[n]) for n in range(2)]
            rows.append((rank, 0, AR, 3, ends[1] + 5, ends[1] + 15))
        return rows

    steps = [step(0, 30), step(0, 130), step(200, 30)]  # the second contradicts "2 waits for 1"
    programs = [program(shifted(rows, i * STEP), 2, [0, 1]) for i, rows in enumerate(steps)]
    result = blame(programs, 2)
    assert programs[0].wait_lags[:3].tolist() == [0, 0, 0b11]
    assert result.step_cost_ns[2].tolist() == [0, 200]


@pytest.mark.parametrize("seed", range(5))
def test_replay_of_what_was_seen_is_what_was_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    now = np.zeros(4, int)
    for number in range(12):
        members = [0, 1, 2, 3] if number % 3 == 0 else [[0, 1], [2, 3]][number % 2]
        comm = 0 if number % 3 == 0 else 1 + number % 2
        start = now[members] + rng.integers(0, 50, len(members))
        end = start.max() + rng.integers(1, 20, len(members))
        rows += [(r, comm, AR, number, int(s), int(e))
                 for r, s, e in zip(members, start, end, strict=True)]  # fmt: skip
        now[members] = np.where(rng.random(len(members)) < 0.3, start, end)  # some do not wait
    step = program(rows, 4, [0, 1, 2, 3], [0, 1], [2, 3])
    blame([step], 4)
    graph = build_graph(step)
    entry = np.full((len(graph.first), 1), step.start_ns.min())
    start_ns, end_ns = replay(graph, entry, step.work_ns[:, None], step.transfer_ns[:, None])
    assert start_ns[:, 0].tolist() == step.start_ns.tolist()
    assert end_ns[:, 0].tolist() == step.end_ns.tolist()


def test_eager_sends_both_ways_are_no_cycle() -> None:
    rows: list[Row] = [
        (0, 0, SEND, 1, 0, 1, 1), (0, 0, RECV, 1, 5, 6, 1),
        (1, 0, SEND, 1, 2, 3, 0), (1, 0, RECV, 1, 4, 5, 0),
    ]  # fmt: skip
    step = program(rows, 2, [0, 1])
    blame([step], 2)
    assert step.gate.tolist() == [0, 2, 0, 2]
    graph = build_graph(step)
    assert len(graph.first) + sum(len(level.rows) for level in graph.levels) == 4


def test_normal_work_and_transfer() -> None:
    work = np.array([[10], [11], [50], [12]])
    assert work_excess_ns(work, np.array([0, 0, 0, 0])).ravel().tolist() == [0, 0, 39, 1]
    assert work_excess_ns(work, np.array([0, 1, 2, 3])).ravel().tolist() == [0, 0, 39, 1]
    assert work_excess_ns(work[:1], np.array([0])).tolist() == [[0]]
    assert transfer_excess_ns(work).ravel().tolist() == [0, 0, 39, 1]


def test_a_step_without_ops_has_no_blame() -> None:
    assert judged([[], []], 2, [0, 1]).step_cost_ns.tolist() == [[0, 0], [0, 0]]


def random_steps(seed: int, n_steps: int) -> tuple[list[list[Row]], list[list[int]]]:
    """Steps of one layout over nested groups, with other times in each."""
    groups = [[0, 1, 2, 3], [0, 1], [2, 3], [1, 2]]
    layout = np.random.default_rng(seed).integers(0, len(groups), 10)
    steps = []
    for nth in range(n_steps):
        rng = np.random.default_rng((seed, nth))
        now, rows = np.zeros(4, int), []
        for number, group in enumerate(layout.tolist()):
            members = groups[group]
            start = now[members] + rng.integers(0, 80, len(members))
            end = start.max() + rng.integers(1, 20, len(members))
            rows += [(r, group, AR, number + 1, int(s), int(e))
                     for r, s, e in zip(members, start, end, strict=True)]  # fmt: skip
            now[members] = np.where(number % 3, end, start)  # some are not waited for
        steps.append(rows)
    return steps, groups


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("cells", "ranks"), [(1, 8), (1, 1), (300, 3), (1 << 20, 2)])
def test_steps_replayed_together_give_what_each_gives_alone(
    seed: int, cells: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, groups = random_steps(seed, 7)
    together = judged(steps, 4, *groups)
    monkeypatch.setattr(blame_module, "REPLAY_CELLS", cells)
    monkeypatch.setattr(blame_module, "REPLAY_RANKS", ranks)
    apart = judged(steps, 4, *groups)
    assert together.step_cost_ns.max() > 0
    for name in Blame.__slots__:
        assert getattr(together, name).tolist() == getattr(apart, name).tolist()


def test_variants_of_many_steps_are_replayed_as_one_by_one() -> None:
    steps, groups = random_steps(3, 5)
    programs = [program(shifted(rows, i * STEP), 4, *groups) for i, rows in enumerate(steps)]
    (batch,) = stack_steps(programs)
    blame(programs, 4)
    graph = build_graph(programs[0])
    firsts = programs[0].bounds[:-1]
    assert graph.first.tolist() == firsts.tolist()
    entry = np.stack([p.start_ns[firsts] - p.work_ns[firsts] for p in programs], axis=1)
    work = np.stack([p.work_ns for p in programs], axis=1)
    transfer = np.stack([p.transfer_ns for p in programs], axis=1)
    start, end = replay(graph, entry, work, transfer)
    for i, step in enumerate(programs):
        alone = replay(graph, entry[:, i : i + 1], work[:, i : i + 1], transfer[:, i : i + 1])
        assert alone[0][:, 0].tolist() == start[:, i].tolist() == step.start_ns.tolist()
        assert alone[1][:, 0].tolist() == end[:, i].tolist() == batch.end_ns[i].tolist()


def test_steps_of_another_layout_are_another_batch() -> None:
    plain = all_reduce([5, 5], 0, 1) + all_reduce([50, 50], 20, 2)
    longer = plain + all_reduce([7, 7], 90, 3)
    steps = [plain, longer, plain, longer, plain]
    programs = [program(shifted(rows, i * STEP), 2, [0, 1]) for i, rows in enumerate(steps)]
    batches = stack_steps([*programs[:2], program([], 2, [0, 1]), *programs[2:]])
    assert [batch.numbers.tolist() for batch in batches] == [[0, 3, 5], [1, 4]]
    assert programs[0].instance is programs[4].instance


def test_the_number_of_candidates_grows_with_the_root_of_the_world() -> None:
    assert [n_candidates(n) for n in (2, 8, 64, 100, 512, 4096)] == [2, 8, 8, 10, 22, 64]


@given(
    arrays(np.int64, (9, 3), elements=st.integers(0, 50)),
    st.lists(st.integers(0, 4), min_size=9, max_size=9),
)
def test_normal_work_is_the_definition(work: np.ndarray, steps: list[int]) -> None:
    excess = work_excess_ns(work, np.array(steps))
    for run in range(9):
        for place in range(3):
            peers = sorted(int(work[r, place]) for r in range(9) if steps[r] == steps[run])
            normal = sorted(work[:, place].tolist())[int(8 * 0.4)]
            if len(peers) > 1:
                normal = max(normal, peers[(len(peers) - 1) // 2])
            assert excess[run, place] == max(work[run, place] - normal, 0)


FOLD = (RecordKind.P2P, Op.ALL_TO_ALL)


def test_a_wait_inside_a_fan_out_is_charged_to_nobody() -> None:
    """Rank 1 waits for 40 inside its fan-out; for whom is not in the record."""

    def step(wait: int) -> list[Row]:
        return [(0, 0, FOLD, 1, 10, 20), (1, 0, FOLD, 1, 10, 20 + wait),
                *all_reduce([0, wait], 30, 1)]  # fmt: skip

    alone = {"is_peerless": [True, False, True, False]}
    steps = [step(0)] * 3 + [step(40)]
    programs = [
        program(shifted(rows, i * STEP), 2, [0, 1], **alone) for i, rows in enumerate(steps)
    ]
    result = blame(programs, 2)
    assert result.transfer_delay_ns.max() == 0
    assert result.own_delay_ns.max() == result.step_cost_ns.max() == 0


def test_a_wait_in_an_op_that_was_only_seen_called_is_charged_to_nobody() -> None:
    """It shows as a late start of the next op, of ranks that may have waited or worked."""

    def step(wait: int) -> list[Row]:
        return [(0, 0, AR, 1, 10, 0), (1, 0, AR, 1, 11, 0), *all_reduce([0, wait], 30, 2)]

    def judged_with(*, is_untimed: bool) -> Blame:
        seen = {"is_untimed": [is_untimed, False, is_untimed, False]}
        steps = [step(0)] * 3 + [step(40)]
        programs = [
            program(shifted(rows, i * STEP), 2, [0, 1], **seen) for i, rows in enumerate(steps)
        ]
        return blame(programs, 2)

    assert judged_with(is_untimed=True).own_delay_ns.max() == 0
    assert judged_with(is_untimed=False).own_delay_ns.max() > 0
