from __future__ import annotations

import pytest

from comminsight.analysis.open_inits import logged_inits
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent, LogValue

START, DONE, COLL = LogCode.NCCL_INIT_START, LogCode.NCCL_INIT_COMPLETE, LogCode.NCCL_COLL
Line = tuple[LogCode, str, str, str]  # code, pointer, hash, pointer of the parent

WORLD: list[Line] = [(START, "0x1", "0xa", ""), (DONE, "0x1", "0xa", "")]
SPLIT: Line = (START, "0x2", "", "0x1")


def log(rank: int, lines: list[Line], n_ranks: int = 2) -> JobLog:
    events = []
    for n, (code, comm, comm_hash, parent) in enumerate(lines, 1):
        values: dict[str, LogValue] = {"comm": comm, "n_ranks": n_ranks}
        values |= {"comm_hash": comm_hash} if comm_hash else {}
        values |= {"parent": parent} if parent else {}
        events.append(
            LogEvent(code=code, file=f"{rank}.log", line=n, text="", host="a", pid=7 + rank,
                     comm_rank=rank, values=values)
        )  # fmt: skip
    return JobLog(file=f"{rank}.log", rank=rank, events=tuple(events))


@pytest.mark.parametrize(
    ("lines", "is_open"),
    [
        ([*WORLD, SPLIT], True),
        ([*WORLD, SPLIT, (DONE, "0x2", "0xb", "0x1")], False),
        # its end is lost, and the process went on
        ([*WORLD, SPLIT, (COLL, "0x2", "", "")], False),
        ([*WORLD, SPLIT, (COLL, "0x1", "", "")], False),
        ([*WORLD, SPLIT, (START, "0x3", "", "0x1"), (DONE, "0x3", "0xc", "0x1")], False),
        (WORLD, False),
    ],
)
def test_only_the_last_line_of_a_process_can_be_a_beginning(
    lines: list[Line], is_open: bool
) -> None:
    found = logged_inits([log(0, lines), log(1, WORLD)])
    assert [one.global_rank for one in found.open] == [0] * is_open
    assert found.members["0xa"] == {0, 1}


def test_the_parent_of_a_split_is_known_by_its_hash() -> None:
    (split,) = logged_inits([log(0, [*WORLD, SPLIT]), log(1, WORLD)]).open
    assert (split.is_split, split.parent_hash, split.comm_hash) == (True, "0xa", "")
    (alone,) = logged_inits([log(0, [SPLIT]), log(1, WORLD)]).open
    assert alone.parent_hash == ""
