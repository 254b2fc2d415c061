"""Every line that a program is known to write gives its event, behind every known prefix; lines
that look alike give none."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest

from comminsight.format import log_nccl
from comminsight.format.log_pattern import KINDS, ORIGIN_NAMES
from comminsight.format.log_reader import PLAIN, LogReader
from comminsight.model.log_event import ECHOES, LogCode, LogEvent, LogTail
from tests.builders.log_job import Sample
from tests.builders.logs import WRAPS, samples

ROWS = tuple(dict.fromkeys(PLAIN + log_nccl.INFO + log_nccl.WARN))
JOINED = {
    LogCode.ELASTIC_FAILURE,
    LogCode.ELASTIC_ROOT_CAUSE,
    LogCode.MPI_EXIT_CODE,
    LogCode.PYTHON_EXCEPTION,
    LogCode.PYTHON_TRACEBACK_OPEN,
}
DOCS = Path(__file__).resolve().parents[3] / "docs" / "logs.md"


def read(*lines: str) -> list[LogEvent]:
    return list(LogReader(io.BytesIO("\n".join([*lines, ""]).encode()), file="some.log"))


def assert_says(event: LogEvent, sample: Sample, where: dict[str, str | int]) -> None:
    assert event.code is sample.code
    assert {name: event.values.get(name) for name in sample.values} == sample.values
    places = {**where, **sample.where}
    assert {name: getattr(event, name) for name in places} == places


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("seed", range(4))
def test_each_line_gives_its_event_behind_every_prefix(wrap: str, seed: int) -> None:
    put, where = WRAPS[wrap]
    made = samples(seed)
    lines = [line for sample in made for line in ("step 1 | loss 2.5", put(sample.line))]
    found = read(*lines)
    assert [event.line for event in found] == list(range(2, len(lines) + 2, 2))
    for event, sample in zip(found, made, strict=True):
        assert_says(event, sample, where)


def test_every_row_of_the_tables_and_every_code_has_a_line() -> None:
    made = [sample for seed in range(2) for sample in samples(seed)]
    unseen = [
        (row.code, row.needle)
        for row in ROWS
        if not any(row.needle in one.line and row.regex.search(one.line) for one in made)
    ]
    assert unseen == []
    assert set(LogCode) - {sample.code for sample in made} <= JOINED


def test_the_documentation_has_every_code_with_its_values() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", DOCS.read_text(), re.MULTILINE)
    documented = {code: set(re.findall(r"`(\w+)`", values)) for code, values in rows}
    assert set(documented) == set(LogCode)
    for code in set(LogCode) - JOINED - {LogCode.NCCL_WARN}:  # whose value is what it says
        named = {name for row in ROWS if row.code is code for name in row.regex.groupindex}
        assert documented[code] == named - ORIGIN_NAMES, code


def test_the_documentation_calls_the_echoes_so() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|[^|]*\|$", DOCS.read_text(), re.MULTILINE)
    said = {code for code, text in rows if re.search(r"(?<!mostly )an echo", text)}
    assert said == set(ECHOES)


def test_a_name_in_a_pattern_says_of_what_kind_its_value_is() -> None:
    assert {name for row in ROWS for name in row.regex.groupindex} <= set(KINDS)


def test_lines_of_all_ranks_may_stand_in_any_order() -> None:
    made = [
        (f"[1,{task}]<stderr>:{sample.line}", task, sample)
        for task in range(16)
        for sample in samples(task)
    ]
    random.Random(7).shuffle(made)
    found = read(*(line for line, _task, _sample in made))
    assert len(found) == len(made)
    for event, (_line, task, sample) in zip(found, made, strict=True):
        assert_says(event, sample, {} if "task" in sample.where else {"task": task})


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3: the watchdog of the nursery reports no timeout",
        "we set NCCL_DEBUG=INFO and read about NCCL WARN lines",
        "a:1:2 [0] NCCL INFO something of a later release",
        "Timeout(ms)=600000 is what we ask for",
        "signal to noise 12: peer review closing in on a terminated branch",
        "INFO: task loaded, blocked for more than a while",
        "checkpoint FAILED to load 12:30 today",
        "the run took 77 FAILED attempts 3:1",
        "exitcode  : unknown",
        "Exit code: none",
        "CUDA is available",
        "the client socket has connected to x on y",
        "Killed process of the previous owner",
        "[c10d] The server socket on x has timed out, will retry.",
        "Broadcast : done",
        "mlx5_core 0000:5e:00.0: firmware version 20.31",
        "Reason: Completed",
        "socket.cpp says that all is fine; EI9999",
        "Received a dump signal of another kind",
        "barrier reached by all peers, resource freed, memory pressure low",
        "Traceback (most recent calls were fine)",
    ],
)
def test_a_line_that_only_looks_alike_is_unknown(line: str) -> None:
    reader = LogReader(io.BytesIO(f"{line}\n".encode()))
    assert list(reader) == []
    assert reader.tally.n_unknown == reader.tally.n_read == 1


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: amber-01: task 3: Exited with exit code 99999999999",
        "a:1:2 [0] NCCL INFO Ring 02 : 7 -> 99999999 -> 1",
        "a:1:2 [0] NCCL WARN Could not find NET with id 9999999999999999999",
        "a:1:2 [0] NCCL INFO comm 0x1 rank 1057455228 nRanks 8 nNodes 1 localRanks 1 localRank 0",
    ],
)
def test_a_number_that_cannot_be_is_not_read(line: str) -> None:
    reader = LogReader(io.BytesIO(f"{line}\n".encode()))
    assert [event.code for event in reader if event.code is not LogCode.NCCL_WARN] == []
    assert reader.tally.n_refused + reader.tally.n_unknown == 1


def test_a_process_that_a_line_speaks_of_without_its_number_is_not_the_writer() -> None:
    (event,) = read("Apr 14 16:17:16 birch-17 trainer[99]: run.sh: Killed      (core dumped) x")
    assert (event.code, event.pid, event.host) == (LogCode.SHELL_SIGNAL, -1, "birch-17")


def test_a_warning_in_the_message_of_an_exception_is_read_without_its_header() -> None:
    (event,) = read("Error while creating shared memory segment /dev/shm/nccl-a (size 64)")
    assert (event.code, event.values) == (
        LogCode.NCCL_SHM,
        {"file": "/dev/shm/nccl-a", "size_bytes": 64},
    )


@pytest.mark.parametrize("n_blank", [0, 1, 9])
def test_the_tail_is_when_the_writer_last_wrote(n_blank: int) -> None:
    lines = ["step 1", "[2026-04-14 16:17:16] saving", *[""] * n_blank, ""]
    reader = LogReader(io.BytesIO("\n".join(lines).encode()))
    assert list(reader) == []
    assert (reader.tail.line, reader.tail.text) == (2, "saving")
    assert reader.tail.time.ns == 1_776_183_436 * 10**9


def test_a_log_of_nothing_has_no_tail() -> None:
    reader = LogReader(io.BytesIO(b"\n\n"))
    assert list(reader) == []
    assert reader.tail == LogTail()
