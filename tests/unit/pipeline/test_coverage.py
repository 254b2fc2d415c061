"""What a run says it has seen: no loss is left out, and no stated size costs memory."""

import tracemalloc

import msgspec
import pytest

from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.killed import judge_killed
from comminsight.model.hang import HangEvent, InFlightOp, Liveness, RankState
from comminsight.model.ops import Op, RecordKind
from comminsight.model.ranges import MAX_LISTED, missing_ranks
from comminsight.model.tally import Tally
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RunTrace
from comminsight.pipeline.coverage import run_coverage

HUGE = (1 << 31) - 1


def waiting(world_size, liveness):
    op = InFlightOp(
        global_rank=0, comm_id=0, kind=RecordKind.COLLECTIVE, op=Op.ALL_REDUCE, op_seq=1,
        match_seq=1, start_ns=1, age_ns=99, is_overdue=True,
    )  # fmt: skip
    return HangEvent(
        observed_mono_ns=100, observed_real_ns=0, overdue_limit_ns=9, world_size=world_size,
        ranks=(RankState(global_rank=0, liveness=liveness),), in_flight=(op,), progress=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("judge", "liveness"), [(judge_hang, Liveness.ALIVE), (judge_killed, Liveness.DEAD)]
)
def test_a_stated_world_costs_nothing(judge, liveness):
    pair = Communicator(comm_id=0, comm_hash=1, ordinal=0, members=(0, HUGE - 1))
    tracemalloc.start()
    verdict = judge(waiting(HUGE, liveness), (pair,))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert verdict.coverage.ranks_expected == HUGE
    assert verdict.coverage.ranks_missing == tuple(range(1, MAX_LISTED + 1))
    assert len(msgspec.json.encode(verdict)) < 1 << 20


def test_missing_ranks_of_a_run():
    trace = RunTrace((), (), {}, ClockOffsets(), HUGE)
    assert run_coverage(trace, (), Tally()).ranks_missing == tuple(range(MAX_LISTED))
    assert missing_ranks(5, [1, 3, 9]) == (0, 2, 4)
    assert missing_ranks(-1, []) == ()
