"""Logs from workers are those that this process reads; what goes wrong there costs time only."""

import os
import sys
from pathlib import Path

import pytest

from comminsight.model.job_evidence import JobLog
from comminsight.pipeline import job_logs, reading_pool
from comminsight.pipeline.job_logs import LOG_WORKERS, read_log, read_logs
from comminsight.pipeline.reading_pool import shared_out

HEAD = "node1:77:78 [0] NCCL INFO"
LINES = (
    f"{HEAD} comm 0x55d0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 4000 commId 0x12 - Init START",
    f"{HEAD} Channel 00/02 :    0   1   2   3",  # a value that is a list
    f"{HEAD} AllReduce: opCount ff sendbuff 0x7f recvbuff 0x7f count 18446744073709 datatype 7 op 0"
    " root 0 comm 0x55d0 [nranks=8] stream 0x55e0",
    "2025-04-14 16:17:16,250 [rank3]: RuntimeError: Größe 鈥 \\ud800",
    "Saving model checkpoint",
    "Avg generation throughput: 12.5 tokens/s, Running: 3 reqs",
)


def write(folder: Path, n: int) -> list[Path]:
    paths = [folder / f"rank_{rank}.log" for rank in range(n)]
    for rank, path in enumerate(paths):
        path.write_text("\n".join(LINES[rank % 3 :]) + "\n", encoding="utf-8")
    return paths


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes read, however little there is."""
    monkeypatch.setattr(reading_pool, "MIN_BYTES", 1)
    monkeypatch.setattr(reading_pool, "BYTES_PER_SHARE", 1)
    monkeypatch.setattr(reading_pool, "HEAD_START_RATIO", 0)
    monkeypatch.setattr(reading_pool, "_n_cores", lambda: 2)


def of_workers(paths: list[Path]) -> dict[Path, JobLog]:
    """What a worker gives back of all of them."""
    return {paths[n]: log for n, log in LOG_WORKERS.found(LOG_WORKERS.answer(paths))}


def test_workers_give_back_exactly_what_is_read_here(tmp_path: Path) -> None:
    paths = write(tmp_path, 5)
    found = of_workers(paths)
    assert found == {path: read_log(path) for path in paths}
    assert any(type(value) is tuple for log in found.values() for event in log.events
               for value in event.values.values())  # fmt: skip


def test_a_log_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    good, bad = write(tmp_path, 2)
    bad.write_bytes(b"\x1f\x8b\x08" + bytes(40))  # says that it is gzip
    gone = tmp_path / "gone.log"
    assert of_workers([bad, gone, good]) == {good: read_log(good)}


def test_one_share_is_read_here_and_the_other_by_a_worker(tmp_path: Path, eager: None) -> None:
    paths, here = write(tmp_path, 5), []

    def noted(path: Path) -> JobLog:
        here.append(path)
        return read_log(path)

    found = LOG_WORKERS.read(paths, noted, lambda log: log)
    assert found == {path: read_log(path) for path in paths}
    assert sorted(here) == sorted(shared_out(paths)[0]) != sorted(paths)


def test_a_worker_that_cannot_start_costs_time_only(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, 3)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    assert set(LOG_WORKERS.read(paths, read_log, lambda log: log)) == set(shared_out(paths)[0])
    logs, unread = read_logs(paths)
    assert (logs, unread) == ([read_log(path) for path in paths], [])


def test_a_worker_that_is_killed_costs_time_only(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, 3)
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    logs, unread = read_logs(paths)
    assert (logs, unread) == ([read_log(path) for path in paths], [])


@pytest.mark.parametrize("cut_bytes", [1, 8, 9, 40])
def test_what_a_killed_worker_wrote_is_used_up_to_its_torn_end(
    cut_bytes: int, tmp_path: Path
) -> None:
    paths = write(tmp_path, 2)
    whole = LOG_WORKERS.answer(paths)
    assert list(LOG_WORKERS.found(whole[:-cut_bytes])) == [(0, read_log(paths[0]))]


def test_a_file_in_the_current_folder_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, 1)
    (tmp_path / "msgspec.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert of_workers(paths) == {paths[0]: read_log(paths[0])}


def test_few_bytes_are_read_here(tmp_path: Path) -> None:
    assert shared_out(write(tmp_path, 20)) == []


def test_logs_keep_their_order_whoever_read_them(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, 6)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd_\xff.log"))  # a name that is no text
    odd.write_text(LINES[0])
    own: list[Path] = []

    def noted(path: Path) -> JobLog:
        own.append(path)
        return read_log(path)

    monkeypatch.setattr(job_logs, "read_log", noted)
    logs, unread = read_logs([*paths[:3], odd, *paths[3:]])
    assert [log.file for log in logs] == [str(one) for one in (*paths[:3], odd, *paths[3:])]
    assert (own, unread) == ([*shared_out(paths)[0], odd], [])
