"""Every case is the same for its seed, can be played, and is judged by what it plants."""

import pytest

from comminsight.lab.cases import FAULTS, KINDS, MIN_MAJORITY, SILENT, draw_case
from comminsight.lab.job import JOBS
from comminsight.lab.options import parse
from comminsight.lab.step_calls import P2P, calls_of, deviated, members_of

N_SEEDS = 12
ONE_GROUP = {"missing_collective", "extra_collective", "shape_mismatch", "dtype_mismatch"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_one_case(kind):
    cases = [draw_case(kind, seed) for seed in range(N_SEEDS)]
    assert cases == [draw_case(kind, seed) for seed in range(N_SEEDS)]
    assert len({(case.ranks, case.arguments) for case in cases}) > N_SEEDS / 3


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_played_and_names_ranks_of_the_job(kind):
    for seed in range(N_SEEDS):
        case = draw_case(kind, seed)
        options = parse(case.arguments, tuple(JOBS))
        assert 4 <= case.ranks <= 8
        assert set(case.planted) <= set(range(case.ranks))
        assert case.is_silent == (kind in SILENT)
        if options.deviation:
            assert 0 <= options.deviation_at < options.steps - 1
            for rank in case.planted:
                calls = calls_of(options.layout, case.ranks, rank)
                places = options.deviation_place, options.deviation_other
                assert deviated(calls, options.deviation, *places) != calls


@pytest.mark.parametrize("kind", sorted(ONE_GROUP))
def test_one_that_is_unlike_the_others_is_in_a_group_in_which_it_can_be_told(kind):
    for seed in range(N_SEEDS):
        case = draw_case(kind, seed)
        options = parse(case.arguments, tuple(JOBS))
        (rank,) = case.planted
        call = calls_of(options.layout, case.ranks, rank)[options.deviation_place]
        assert call.op not in P2P
        assert len(members_of(options.layout, case.ranks, rank, call.group)) >= MIN_MAJORITY


def test_no_right_answer_names_only_others():
    for kind in FAULTS:
        for seed in range(N_SEEDS):
            case = draw_case(kind, seed)
            for right in case.accepted:
                assert right.must | right.may >= set(case.planted)
