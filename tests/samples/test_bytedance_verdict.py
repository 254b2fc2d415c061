"""The straggler rule on the real 64-GPU job: it names the origin, which the index does not."""

import pytest

from comminsight.analysis.measures import straggler_measures
from comminsight.diagnosis import codes
from comminsight.diagnosis.straggler import judge_straggler
from comminsight.model.verdict import Cause, Coverage
from tests.samples.test_bytedance_straggler import PATH, communicators, rank_of, trace

pytestmark = pytest.mark.skipif(not PATH.exists(), reason=f"no sample at {PATH}")


@pytest.mark.parametrize("with_embedding", [True, False])
def test_the_slow_worker_is_named_and_the_index_points_elsewhere(with_embedding: bool) -> None:
    measures = straggler_measures(trace(with_embedding))
    seen = Coverage(ranks_expected=16, ranks_seen=16)
    verdict = judge_straggler(measures, communicators(), seen)
    assert (verdict.cause, verdict.culprits) == (Cause.COMPUTE_STRAGGLER, (rank_of(0, 0),))
    assert verdict.first_step <= 1
    elsewhere = [e for e in verdict.evidence if e.message.code == codes.INDEX_ELSEWHERE]
    assert elsewhere[0].message.params["rank"] == rank_of(1, 0)
