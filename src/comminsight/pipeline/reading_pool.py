"""Many files read at once: by fresh interpreters that get paths and give back what is in them.

They only save time. A file that does not come back, for whatever reason, is not in the answer, and
the caller reads it itself. No process is forked, so that threads do not matter, and a script
without a main guard does not run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from comminsight.errors import InputError

MIN_BYTES = 8 << 20  # below, it takes longer to start an interpreter than to read
BYTES_PER_SHARE = 4 << 20
HEAD_START_RATIO = 0.4  # of an equal share: interpreters start, and what they read is packed
MAX_SHARES = 16
LENGTH_BYTES = 8
_ENCODER = msgspec.msgpack.Encoder()
_PATHS = msgspec.msgpack.Decoder(list[str])

Read = TypeVar("Read")
One = TypeVar("One")


class ReadingPool(Generic[Read]):
    """Workers of one module, which calls ``serve`` with what reads a file. ``form`` is the type of
    what they give back of each."""

    def __init__(self, module: str, form: type[Read]) -> None:
        self._module = module
        self._decoder: msgspec.msgpack.Decoder[tuple[int, Read]] = msgspec.msgpack.Decoder(
            tuple[int, form]  # type: ignore[valid-type]
        )

    def read(
        self, paths: Sequence[Path], here: Callable[[Path], One], unpacked: Callable[[Read], One]
    ) -> dict[Path, One]:
        """What is in those paths that could be read, one share of them by ``here``, the others by
        workers meanwhile and ``unpacked``; {} where there is too little to read for that.

        Raises what ``here`` raises, but InputError and OSError.
        """
        own, *others = shared_out(paths) or [[]]
        found: dict[Path, One] = {}
        if not others:
            return found
        with ThreadPoolExecutor(len(others)) as threads:
            answers = [threads.submit(self.answer, share) for share in others]
            for path in own:
                with suppress(InputError, OSError):
                    found[path] = here(path)
        for share, answer in zip(others, answers, strict=True):
            found.update((share[n], unpacked(one)) for n, one in self.found(answer.result()))
        return found

    def answer(self, share: Sequence[Path]) -> bytes:
        """What a worker wrote until its end, whatever ended it."""
        asked = _ENCODER.encode([str(path) for path in share])
        # -P: a file in the current folder is evidence, and never a module
        command = [sys.executable, "-P", "-m", self._module]
        try:
            done = subprocess.run(
                command, input=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
            )
        except OSError:
            return b""
        return done.stdout

    def found(self, answer: bytes) -> Iterator[tuple[int, Read]]:
        """All that is whole in what a worker wrote; its end may be torn."""
        begin = 0
        while begin + LENGTH_BYTES <= len(answer):
            end = begin + LENGTH_BYTES
            end += int.from_bytes(answer[begin:end], "little")
            if end > len(answer):
                return
            yield self._decoder.decode(memoryview(answer)[begin + LENGTH_BYTES : end])
            begin = end


def shared_out(paths: Sequence[Path]) -> list[list[Path]]:
    """The paths in shares of like size, one for each process that pays off, that of this process
    first; [] where none does."""
    sizes = {path: _size_bytes(path) for path in paths if _is_named(path)}
    total_bytes = sum(sizes.values())
    n_shares = min(_n_cores(), MAX_SHARES, total_bytes // BYTES_PER_SHARE, len(sizes))
    if total_bytes < MIN_BYTES or n_shares < 2 or not sys.executable:
        return []
    head_start_bytes = int(HEAD_START_RATIO * total_bytes / n_shares)
    loads = [0, *[head_start_bytes] * (n_shares - 1)]
    shares: list[list[Path]] = [[] for _ in loads]
    for path in sorted(sizes, key=lambda path: -sizes[path]):
        least = loads.index(min(loads))
        loads[least] += sizes[path]
        shares[least].append(path)
    return [share for share in shares if share]


def serve(read: Callable[[Path], Any], stdin: BinaryIO, stdout: BinaryIO) -> None:
    """The worker's side: what is in the paths in ``stdin`` to ``stdout``, each with its number
    and its length before it; one that cannot be read is left out."""
    for n, path in enumerate(_PATHS.decode(stdin.read())):
        try:
            data = _ENCODER.encode((n, read(Path(path))))
        except (InputError, OSError):
            continue
        stdout.write(len(data).to_bytes(LENGTH_BYTES, "little") + data)
    stdout.flush()


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
