import numpy as np

from comminsight.model.event import empty_batch
from comminsight.model.trace import RankTrace
from tests.builders.records import identity


def test_a_communicator_whose_row_was_lost_is_unknown():
    trace = RankTrace(identity(), empty_batch(), np.array([-1, 7, 8], np.int32))
    asked = np.array([0, 1, 2, 3, 2**32 - 1], np.uint32)
    assert trace.comm_ids_of(asked).tolist() == [-1, 7, 8, -1, -1]
