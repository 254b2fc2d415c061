"""The index gives what a walk over all lines gives, in the same order."""

from typing import Any

import pytest
from msgspec.structs import replace

from comminsight.analysis.log_index import (
    events_with,
    has_any,
    lines_in_order,
    lines_of_writers,
    lines_with,
)
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

COLL, INIT, WARN = LogCode.NCCL_COLL, LogCode.NCCL_INIT_START, LogCode.NCCL_WARN


def log(file: str, *codes: LogCode) -> JobLog:
    events = (LogEvent(code=c, file=file, line=n, text="") for n, c in enumerate(codes, 1))
    return JobLog(file=file, events=tuple(events))


LOGS = (log("a", INIT, COLL, INIT, WARN), log("empty"), log("b", WARN, COLL, INIT))


@pytest.mark.parametrize("codes", [{COLL}, {INIT, COLL}, {WARN, INIT, COLL}, {LogCode.GLOO_CLOSED}])
def test_lines_come_in_the_order_of_the_logs(codes: set[LogCode]) -> None:
    walked = [(one, event) for one in LOGS for event in one.events if event.code in codes]
    assert list(lines_in_order(LOGS, codes)) == walked
    assert has_any(LOGS, codes) == bool(walked)


def test_lines_of_several_codes_come_code_after_code() -> None:
    found = [(event.code, event.file, event.line) for _, event in lines_with(LOGS, INIT, COLL)]
    assert found == [(COLL, "a", 2), (COLL, "b", 2), (INIT, "a", 1), (INIT, "a", 3), (INIT, "b", 3)]
    assert [event for _, event in lines_with(LOGS, INIT, COLL)] == list(
        events_with(LOGS, {INIT, COLL})
    )


WRITERS = [{"rank": 1}, {"pid": 7}, {"host": "n1"}, {"task": 2}, {"local_rank": 3}]


@pytest.mark.parametrize("writer", WRITERS)
def test_of_calls_the_first_of_each_writer_is_among_the_lines_of_writers(
    writer: dict[str, Any],
) -> None:
    own = log("a", COLL, INIT, COLL, INIT, COLL, COLL)
    events = [replace(event, **writer) if event.line > 4 else event for event in own.events]
    logs = (replace(own, events=tuple(events)), log("b", WARN, COLL, COLL))
    found = [(event.file, event.line) for _, event in lines_of_writers(logs)]
    assert found == [("a", 1), ("a", 2), ("a", 4), ("a", 5), ("b", 1), ("b", 2)]


def test_other_logs_with_the_same_place_in_memory_are_not_mixed_up() -> None:
    for n in range(50):  # the index is kept for a few logs only, and knows them by identity
        own = [log(str(n), *[COLL] * n)]
        assert sum(1 for _ in lines_with(own, COLL)) == n
