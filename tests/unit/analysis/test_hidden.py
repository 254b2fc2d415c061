from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.hidden import hidden_ratio, untimed_ratio
from comminsight.model.ops import EndReason
from comminsight.model.trace import RankTrace
from tests.builders import allreduce, fold, identity, ops, send, unseen_end


def trace(*rows: np.ndarray) -> RankTrace:
    return RankTrace(session=identity(0), ops=ops(*rows), comm_ids=np.array([-1, 0]))


def test_time_in_fan_outs_is_that_of_the_rank_with_most() -> None:
    plain = trace(allreduce(1, 0.0, ms=60), send(2, 60.0, ms=40, peer=1))
    folded = trace(allreduce(1, 0.0, ms=60), fold(2, 60.0, 20, ms=25), allreduce(3, 99.0))
    assert hidden_ratio([plain]) == 0
    assert hidden_ratio([plain, folded]) == pytest.approx(0.25)
    assert hidden_ratio([trace()]) == hidden_ratio([]) == 0


def test_calls_that_were_only_seen_called_count_with_all_of_a_fan_out() -> None:
    seen = [allreduce(n, float(n)) for n in range(1, 61)]
    assert untimed_ratio([trace(*seen)]) == 0
    unseen = unseen_end(fold(61, 61.0, 20), EndReason.NO_TASK)
    assert untimed_ratio([trace(*seen), trace(*seen, unseen)]) == pytest.approx(0.25)
    assert untimed_ratio([trace()]) == 0
