"""The last life of a job that torchrun started again, by folders, by lines and by stamps."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_lives import last_life
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import ClockKind, LogCode, LogEvent, LogTime

S = 1_000_000_000
FAULT, RESTART = LogCode.CUDA_ERROR, LogCode.ELASTIC_RESTART
INIT, TABLE = LogCode.NCCL_INIT_COMPLETE, LogCode.ELASTIC_FAILURE


def log(file: str, *rows: tuple[LogCode, int]) -> JobLog:
    """A log of (code, second) rows; second 0 is a line without a stamp."""
    events = [
        LogEvent(code=code, file=file, line=line, first_line=line, text="",
                 time=LogTime(ClockKind.ZONED, at_s * S, 0) if at_s else LogTime(ClockKind.NONE))
        for line, (code, at_s) in enumerate(rows, 1)
    ]  # fmt: skip
    return JobLog(file=file, events=tuple(events))


@pytest.mark.parametrize(
    ("logs", "kept"),
    [
        ([log("a", (FAULT, 0), (RESTART, 0), (INIT, 0))], {"a": [3]}),
        ([log("a", (FAULT, 0), (RESTART, 0))], {"a": [1, 2]}),
        ([log("a", (FAULT, 0), (RESTART, 0), (TABLE, 0))], {"a": [1, 2, 3]}),
        ([log("a", (FAULT, 0), (RESTART, 0), (INIT, 0), (FAULT, 0), (RESTART, 0))],
         {"a": [3, 4, 5]}),
        ([log("a", (RESTART, 50)), log("b", (INIT, 10), (FAULT, 0), (INIT, 40), (FAULT, 60))],
         {"a": [], "b": [4]}),
        ([log("a", (RESTART, 50)), log("b", (FAULT, 10))], {"a": [1], "b": [1]}),
        ([log("x/attempt_0/1/stderr.log", (FAULT, 0)), log("x/attempt_1/1/stderr.log", (INIT, 0)),
          log("a", (FAULT, 0), (RESTART, 0))], {"x/attempt_1/1/stderr.log": [1], "a": []}),
        ([log("x/attempt_0/1/stderr.log", (FAULT, 0)), log("y/attempt_1/1/stderr.log", (INIT, 0))],
         {"x/attempt_0/1/stderr.log": [1], "y/attempt_1/1/stderr.log": [1]}),
    ],
)  # fmt: skip
def test_lines_of_an_earlier_life_are_left_out(
    logs: list[JobLog], kept: dict[str, list[int]]
) -> None:
    found = {one.file: [event.line for event in one.events] for one in last_life(logs)}
    assert found == kept
