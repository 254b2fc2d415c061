"""Work of one rank counts while others wait, and neither before nor after."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_ends import ends_of
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.log_work import LoggedWork, logged_work
from comminsight.model.job_evidence import JobLog
from tests.unit.analysis.log_texts import job_log

S = 1_000_000_000
TIMEOUT = (
    "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)


def at(second: int, rank: int, text: str) -> str:
    minutes, seconds = divmod(second, 60)
    hour, minutes = divmod(minutes, 60)
    return f"[rank{rank}]:[E0414 {16 + hour}:{minutes:02d}:{seconds:02d}.000000 x.py:1] {text}"


def work(*lines: str) -> list[LoggedWork]:
    return of(job_log(*lines))


def of(*logs: JobLog) -> list[LoggedWork]:
    ranks = ranks_of(logs, 3)
    return logged_work(logs, ranks, ends_of(logs, ranks))


GAVE_UP = at(601, 1, TIMEOUT.format(1))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((at(1, 0, "Map:  4%|#"), at(590, 0, "Map:  61%|##")), [(0, 589 * S - 2000)]),
        ((at(1, 0, "saving checkpoint to x"),), [(0, 0)]),
        # done before the others gave up
        ((at(1, 0, "Map:  4%|#"), at(90, 0, "Map:  100%|##")), []),
        ((at(1, 0, "saving checkpoint to x"), at(30, 0, "saved the checkpoint")), []),
        # done after that: they did not wait long enough
        ((at(1, 0, "Map:  4%|#"), at(700, 0, "Map:  100%|##")), [(0, 699 * S - 2000)]),
        # begun after the others had given up, or long before they came to wait
        ((at(700, 0, "saving checkpoint to x"),), []),
        # the one who works waits as well
        ((at(1, 0, "Map:  4%|#"), at(602, 0, TIMEOUT.format(0))), []),
    ],
)
def test_work_by_its_stamps(lines: tuple[str, ...], found: list[tuple[int, int]]) -> None:
    assert [(one.rank, one.took_ns) for one in work(*lines, GAVE_UP)] == found


def test_work_of_long_ago_is_none() -> None:
    lines = [at(1, 0, "saving checkpoint to x"), at(9001, 1, TIMEOUT.format(1))]
    assert work(*lines) == []


@pytest.mark.parametrize(
    ("last", "n_found"), [((), 1), (("[rank0]: CUDA error: x",), 0)], ids=["at it", "went on"]
)
def test_without_stamps_it_is_the_last_line_of_its_rank(
    last: tuple[str, ...], n_found: int
) -> None:
    own = job_log("[rank0]: Map:  61%|##  | 6/10", *last, file="rank_0.log", rank=0)
    other = job_log(f"[rank1]: {TIMEOUT.format(1)}", file="rank_1.log", rank=1)
    assert len(of(own, other)) == n_found


def test_work_that_nobody_waits_for_is_not_told() -> None:
    assert work(at(1, 0, "Map:  4%|#")) == []
