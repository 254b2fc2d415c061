import numpy as np

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import OpState, RecordKind
from comminsight.pipeline.trace import finished_ops


def records(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """(seq, start_ns, kind, state)."""
    batch = np.zeros(len(rows), OP_DTYPE)
    for name, column in zip(
        ("seq", "start_ns", "kind", "state"), zip(*rows, strict=True), strict=True
    ):
        batch[name] = column
    return batch


COLLECTIVE, NET, DONE, OPEN = RecordKind.COLLECTIVE, RecordKind.NET, OpState.DONE, OpState.OPEN


def test_finished_ops_stand_by_start_then_by_arrival() -> None:
    rows = [(1, 50, COLLECTIVE, DONE), (2, 20, COLLECTIVE, DONE), (3, 50, COLLECTIVE, DONE),
            (4, 10, COLLECTIVE, OPEN), (5, 10, NET, DONE), (6, 0, COLLECTIVE, DONE)]  # fmt: skip
    assert finished_ops(records(*rows))["seq"].tolist() == [2, 1, 3]
    assert finished_ops(records(*rows[::-1]))["seq"].tolist() == [2, 1, 3]


def test_no_records_are_no_ops() -> None:
    assert finished_ops(np.empty(0, OP_DTYPE)).dtype == OP_DTYPE
