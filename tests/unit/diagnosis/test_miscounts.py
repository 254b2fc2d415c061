"""Communicators in which members were not told of unlike numbers of calls."""

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.verdict import Cause
from tests.unit.diagnosis.events import AR, came, comm, event, op

WORLD = (comm(0, range(4)), comm(1, range(4)))


def counted(rank, comm_id, entered, n_unseen=0):
    return replace(came(rank, comm_id, entered), n_unseen=n_unseen)


def hung(unseen, waiting_comm=0):
    """Rank 3 never enters; ``unseen`` calls in communicator 0 by rank."""
    waiting = [op(rank, waiting_comm, AR, 9) for rank in (0, 1, 2)]
    progress = [counted(rank, 0, 8, unseen.get(rank, 0)) for rank in range(4)]
    return event(4, waiting, [*progress, *(counted(rank, 1, 8) for rank in range(4))])


def test_unlike_numbers_name_nobody():
    verdict = judge_hang(hung({1: 10}), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    told = {missing.code: missing.params for missing in verdict.missing}
    assert told[codes.MISSING_COUNTS]["ranks"] == [1]
    assert told[codes.MISSING_COUNTS]["n_calls"] == 10


def test_where_all_missed_as_many_the_numbers_agree():
    verdict = judge_hang(hung(dict.fromkeys(range(4), 10)), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))


def test_other_communicators_are_not_concerned():
    verdict = judge_hang(hung({1: 10}, waiting_comm=1), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))


def test_a_rank_inside_of_an_op_without_a_number_may_be_held_there():
    seen = hung({1: 10}, waiting_comm=1)
    held = replace(seen, in_flight=(*seen.in_flight, op(3, 0, AR, 4)))
    assert judge_hang(held, WORLD).culprits == ()
