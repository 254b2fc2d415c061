"""Many logs read at once: by fresh interpreters that get paths and give the logs back.

They only save time. A log that does not come back, for whatever reason, is not in the answer, and
the caller reads it itself. No process is forked, so that threads do not matter, and a script
without a main guard does not run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.model.job_evidence import JobLog

MIN_BYTES = 8 << 20  # below, it takes longer to start an interpreter than to read
BYTES_PER_WORKER = 4 << 20
MAX_WORKERS = 16
LENGTH_BYTES = 8
WORKER = "comminsight.pipeline.log_worker"
_ENCODER = msgspec.msgpack.Encoder()
_LOG = msgspec.msgpack.Decoder(tuple[int, JobLog])
_PATHS = msgspec.msgpack.Decoder(list[str])


def logs_read_at_once(paths: Sequence[Path]) -> dict[Path, JobLog]:
    """The logs that workers could read; {} where there is too little to read for that."""
    sizes = {path: _size_bytes(path) for path in paths if _is_named(path)}
    total_bytes = sum(sizes.values())
    n_workers = min(_n_cores(), MAX_WORKERS, total_bytes // BYTES_PER_WORKER, len(sizes))
    if total_bytes < MIN_BYTES or n_workers < 2 or not sys.executable:
        return {}
    by_size = sorted(sizes, key=lambda path: -sizes[path])
    return logs_of_workers([by_size[n::n_workers] for n in range(n_workers)])


def logs_of_workers(shares: Sequence[Sequence[Path]]) -> dict[Path, JobLog]:
    """The logs that come back from workers, one for each share of the paths."""
    with ThreadPoolExecutor(len(shares)) as threads:
        answers = list(threads.map(_answer, shares))
    return {
        share[n]: log
        for share, answer in zip(shares, answers, strict=True)
        for n, log in _logs_in(answer)
    }


def serve(read: Callable[[Path], JobLog], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """The worker's side: the logs of the paths in ``stdin`` to ``stdout``, each with its number
    and its length before it; one that cannot be read is left out."""
    for n, path in enumerate(_PATHS.decode(stdin.read())):
        try:
            data = _ENCODER.encode((n, read(Path(path))))
        except (InputError, OSError):
            continue
        stdout.write(len(data).to_bytes(LENGTH_BYTES, "little") + data)
    stdout.flush()


def _answer(share: Sequence[Path]) -> bytes:
    """What a worker wrote until its end, whatever ended it."""
    asked = _ENCODER.encode([str(path) for path in share])
    # -P: a file in the current folder is evidence, and never a module
    command = [sys.executable, "-P", "-m", WORKER]
    try:
        done = subprocess.run(
            command, input=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return b""
    return done.stdout


def _logs_in(answer: bytes) -> Iterator[tuple[int, JobLog]]:
    """The whole logs in what a worker wrote; its end may be torn."""
    begin = 0
    while begin + LENGTH_BYTES <= len(answer):
        end = begin + LENGTH_BYTES
        end += int.from_bytes(answer[begin:end], "little")
        if end > len(answer):
            return
        yield _LOG.decode(memoryview(answer)[begin + LENGTH_BYTES : end])
        begin = end


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_named(path: Path) -> bool:
    """True for a name that is text."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
