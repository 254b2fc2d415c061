"""What stands before a line is taken off, and claims no more than it says."""

from __future__ import annotations

import io

import pytest

from comminsight.format.log_prefix import split
from comminsight.format.log_reader import LogReader
from comminsight.model.log_event import ClockKind

WARN = "amber-01:7:8 [0] NCCL WARN something"


@pytest.mark.parametrize(
    "line",
    [
        "[epoch3]: loss 2.5",
        "[3] done",
        "3: done",
        "[1,5]: shape of the batch",
        "    3: done",
        "(worker 3) done",
        "2026 was a good year",
        "[2026] and another",
        "Mon 12 all is well",
        "CUDA error: it begins like a host and its program",
        '{"loss": 2.5}',
        '{"log": 5, "time": "2026-04-14T16:17:16Z"}',
        "{ not JSON",
        "[rankx]: odd",
        "[9999999999999,1]<stderr>:odd",
    ],
)
def test_what_is_no_prefix_stays(line: str) -> None:
    origin, text = split(line)
    assert (text, origin) == (line.rstrip(), split("")[0])


def test_a_stamp_that_there_is_not_gives_no_time() -> None:
    (event,) = LogReader(io.BytesIO(f"[2026-13-41 25:61:61] {WARN}".encode()))
    assert event.time.kind is ClockKind.NONE


def test_a_label_of_srun_counts_where_every_line_has_one() -> None:
    labelled = [f"{task}: step 1" for task in (0, 1, 2, 10, 11)] * 2 + [f"11: {WARN}"]
    begun = ["srun: job 7 queued and waiting for resources", *labelled]
    torn = [*labelled, f"7: {WARN}", "no label"]
    for lines, tasks in ((labelled, [11]), (begun, [11]), (torn, [-1, -1]), ([f"3: {WARN}"], [-1])):
        found = list(LogReader(io.BytesIO("\n".join([*lines, ""]).encode())))
        assert [event.task for event in found] == tasks


def test_the_number_of_a_launcher_is_no_rank() -> None:
    (event,) = LogReader(io.BytesIO(f"[1,3]<stderr>:{WARN}".encode()))
    assert (event.task, event.rank) == (3, -1)


def test_more_layers_than_anyone_stacks_leave_the_rest_as_text() -> None:
    origin, text = split("[rank1]: " * 9 + "x")
    assert (origin.rank, text) == (1, "[rank1]: x")
