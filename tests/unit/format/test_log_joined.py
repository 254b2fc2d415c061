"""Texts of several lines become one event, however their lines are mixed with those of others."""

from __future__ import annotations

import io
import random

import pytest

from comminsight.format import log_joined
from comminsight.format.log_reader import LogReader
from comminsight.model.log_event import ClockKind, LogCode, LogEvent
from tests.builders.logs import WRAPS

# wraps that give no line of its own to a text, or that claim to be another program
SINGLE = {"torch C++", "torch C++ of old", "elastic", "elastic of old", "python logging", "glued",
          "C++ with its thread"}  # fmt: skip
PROCESSES = [name for name in WRAPS if name not in SINGLE]


def read(*lines: str) -> list[LogEvent]:
    return list(LogReader(io.BytesIO("\n".join([*lines, ""]).encode())))


def traceback(file: str, line: int, ending: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/job/launch.py", line 9, in <module>',
        "    main()",
        f'  File "{file}", line {line}, in train_step',
        "    loss.backward()",
        "    ^^^^^^^^^^^^^^^",
        ending,
    ]


def failure(rank: int, pid: int, code: int, number: int) -> list[str]:
    return [
        f"[{number}]:",
        "  time      : 2026-04-14_16:17:16",
        f"  host      : amber-{rank}",
        f"  rank      : {rank} (local_rank: {rank % 8})",
        f"  exitcode  : {code} (pid: {pid})" + "  (SIGTERM)" * (code == -15),
        "  error_file: <N/A>",
        f"  traceback : Signal {-code} received by PID {pid}",
    ]


@pytest.mark.parametrize("wrap", PROCESSES)
@pytest.mark.parametrize(
    ("ending", "exception", "message"),
    [
        ("ValueError: too few shards", "ValueError", "too few shards"),
        ("AssertionError", "AssertionError", ""),
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("zmq.error.Again: gone", "zmq.error.Again", "gone"),
        ("ray.exceptions.RayTaskError(OSError): lost", "ray.exceptions.RayTaskError", "lost"),
    ],
)
def test_a_traceback_is_its_exception_with_the_last_frame(
    wrap: str, ending: str, exception: str, message: str
) -> None:
    put, where = WRAPS[wrap]
    (event,) = read("before", *map(put, traceback("/job/train.py", 31, ending)), "after")
    assert event.code is LogCode.PYTHON_EXCEPTION
    assert (event.first_line, event.line) == (2, 8)
    assert event.values == {
        "exception": exception, "message": message, "file": "/job/train.py", "frame_line": 31,
        "function": "train_step", "n_frames": 2,
    }  # fmt: skip
    places = {name: value for name, value in where.items() if name != "n_repeated"}
    assert {name: getattr(event, name) for name in places} == places


def test_an_exception_with_a_known_message_is_that_with_its_frame() -> None:
    ending = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has"
    (event,) = read(*traceback("/job/model.py", 7, ending))
    assert event.code is LogCode.CUDA_OUT_OF_MEMORY
    assert (event.values["cuda_device"], event.values["wanted_bytes"]) == (1, 2 << 30)
    assert (event.values["file"], event.values["frame_line"]) == ("/job/model.py", 7)


@pytest.mark.parametrize("n_ranks", [2, 9, 64])
def test_interleaved_ranks_with_a_prefix_keep_their_own_frames(n_ranks: int) -> None:
    rng = random.Random(n_ranks)
    left = {
        rank: [f"[rank{rank}]: {line}" for line in traceback(f"/job/{rank}.py", rank, "OSError: x")]
        for rank in range(n_ranks)
    }
    lines = []
    while left:
        rank = rng.choice(list(left))
        lines.append(left[rank].pop(0))
        if rng.random() < 0.3:
            lines.append("[rank0]: step 3")
        if not left[rank]:
            del left[rank]
    found = read(*lines)
    assert sorted(event.rank for event in found) == list(range(n_ranks))
    for event in found:
        assert event.values["file"] == f"/job/{event.rank}.py"


def test_two_without_a_prefix_at_once_give_no_frame() -> None:
    one, two = traceback("/a.py", 1, "OSError: a"), traceback("/b.py", 2, "ValueError: b")
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    found = read(*mixed)
    assert [event.code for event in found] == [
        LogCode.PYTHON_TRACEBACK_OPEN,
        LogCode.PYTHON_EXCEPTION,
    ]
    assert all("file" not in event.values for event in found)


def test_a_traceback_that_nobody_finished_is_open() -> None:
    whole = traceback("/a.py", 4, "unused")[:-1]
    (event,) = read(*(f"[rank5]: {line}" for line in whole), *["noise"] * 3)
    assert (event.code, event.rank) == (LogCode.PYTHON_TRACEBACK_OPEN, 5)
    assert (event.first_line, event.line, event.values["frame_line"]) == (1, 6, 4)


def test_a_traceback_that_nobody_finished_is_given_up_in_time() -> None:
    whole = [f"[rank5]: {line}" for line in traceback("/a.py", 4, "unused")[:-1]]
    late = "[rank5]: ValueError: of something else"
    quiet = ["[rank1]: noise"] * (log_joined.MAX_QUIET_LINES + 1)
    (event,) = read(*whole, *quiet, late)
    assert event.code is LogCode.PYTHON_TRACEBACK_OPEN
    (closed,) = read(*whole, *quiet[:-10], late)
    assert closed.code is LogCode.PYTHON_EXCEPTION


def test_more_unfinished_texts_than_are_kept_give_the_oldest_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_joined, "MAX_OPEN", 3)
    heads = [f"[rank{rank}]: Traceback (most recent call last):" for rank in range(5)]
    found = read(*heads)
    assert [event.rank for event in found] == [0, 1, 2, 3, 4]
    assert {event.code for event in found} == {LogCode.PYTHON_TRACEBACK_OPEN}


def test_an_indented_line_of_another_kind_is_no_part_of_a_traceback() -> None:
    found = read(*traceback("/a.py", 4, "  what():  CUDA error: unspecified launch failure"))
    assert [event.code for event in found] == [LogCode.CUDA_ERROR, LogCode.PYTHON_TRACEBACK_OPEN]


def test_a_line_of_a_logger_does_not_end_a_traceback() -> None:
    text = traceback("/a.py", 4, "OSError: gone")
    text.insert(4, "INFO: 12 tokens")
    text.insert(4, "step: 4")
    (event,) = read(*text)
    assert (event.values["exception"], event.values["frame_line"]) == ("OSError", 4)


@pytest.mark.parametrize("wrap", PROCESSES)
@pytest.mark.parametrize("n_failures", [0, 1, 30])
def test_the_table_of_torchrun_gives_each_rank_and_the_first(wrap: str, n_failures: int) -> None:
    put, _where = WRAPS[wrap]
    lines = ["train.py FAILED", "Failures:"]
    for number in range(n_failures):
        lines += failure(number + 1, 100 + number, -15, number + 1)
    lines += ["  <NO_OTHER_FAILURES>"] * (not n_failures)
    lines += ["-----", "Root Cause (first observed failure):", *failure(0, 99, -9, 0), "====="]
    found = read(*map(put, lines))
    others = [event for event in found if event.code is LogCode.ELASTIC_FAILURE]
    assert [event.rank for event in others] == list(range(1, n_failures + 1))
    assert {event.values["exit_code"] for event in others} <= {-15}
    (root,) = (event for event in found if event.code is LogCode.ELASTIC_ROOT_CAUSE)
    assert (root.rank, root.pid, root.host, root.local_rank) == (0, 99, "amber-0", 0)
    assert root.values == {"exit_code": -9}
    assert len(found) == n_failures + 1


def test_a_table_has_the_time_of_its_row() -> None:
    *_rest, root = read("Root Cause (first observed failure):", *failure(0, 99, -9, 0))
    assert (root.time.kind, root.time.ns // 10**9) == (ClockKind.NO_ZONE, 1_776_183_436)


def test_an_exit_code_without_its_table_names_no_rank() -> None:
    (event,) = read("  exitcode  : -11 (pid: 6175)")
    assert (event.code, event.rank, event.pid) == (LogCode.ELASTIC_FAILURE, -1, 6175)
    assert event.host == ""


@pytest.mark.parametrize("name", ["[[12711,1],3]", "[prterun-node1-2345@1,3]"])
def test_the_report_of_mpirun_gives_the_task(name: str) -> None:
    (event,) = read(f"  Process name: {name}", "  Exit code:    17")
    assert (event.code, event.task, event.values) == (LogCode.MPI_EXIT_CODE, 3, {"exit_code": 17})
    assert (event.first_line, event.line) == (1, 2)
