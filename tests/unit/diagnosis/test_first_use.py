"""A circle that the first op of a new group closes: who is missing there, and who may be early."""

import pytest

from comminsight.diagnosis.hang import judge_hang
from comminsight.model.verdict import Cause
from tests.unit.diagnosis.events import AR, came, comm, event, op

N = 6
USED, NEW = comm(0, tuple(range(N))), comm(1, tuple(range(N)))


@pytest.mark.parametrize(
    ("n_in_new", "cause", "culprits"),
    [
        (5, Cause.RANK_NOT_ENTERED, (5,)),
        (4, Cause.RANK_NOT_ENTERED, (4, 5)),
        (3, Cause.CROSS_GROUP_CYCLE, (0, 3)),  # as many say that the other group comes first
        (2, Cause.CROSS_GROUP_CYCLE, (0, 2)),
    ],
)
def test_the_few_are_named_and_nobody_where_they_are_not_few(n_in_new, cause, culprits):
    inside = [op(r, 1, AR, 1) for r in range(n_in_new)]
    inside += [op(r, 0, AR, 5) for r in range(n_in_new, N)]
    before = [came(r, 0, 4) for r in range(N)]
    verdict = judge_hang(event(N, inside, before), (USED, NEW))
    assert (verdict.cause, verdict.culprits) == (cause, culprits)
