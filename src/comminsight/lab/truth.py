"""The truth file: what the job itself did and when, for tests to hold the record against.

JSON lines; every line is one ``write`` to a file opened with O_APPEND, so that ranks share a file
and a killed rank loses no line that it had written. Times are CLOCK_MONOTONIC nanoseconds.

=============== ==========================================================================
``kind``        further keys
=============== ==========================================================================
``job``         ``job seed world_size pid begin_ns``
``group``       ``name desc members`` (global ranks in group order)
``step_begin``  ``step begin_ns`` (a step that never ends has only this line)
``step``        ``step begin_ns end_ns loss`` (the loss as a hexadecimal float); serving jobs add
                ``mode``: prefill, decode or mixed
``phase``       ``step phase microbatch begin_ns end_ns``: forward, backward, grad_sync, optimizer;
                jobs with several chunks per stage add ``chunk``
``evaluation``  ``step begin_ns end_ns``: behind this step
``checkpoint``  ``step begin_ns end_ns``: behind this step
``idle``        ``begin_ns end_ns``: nobody asked for anything
``late``        ``step begin_ns end_ns``: planted sleep of this rank
``stop``        ``step begin_ns``: this rank now stays away
``slow``        ``step begin_ns end_ns``: this rank was frozen during a transfer
``exit``        ``step how begin_ns``: this rank leaves now, or is stopped
``deviation``   ``step how begin_ns``: the calls of this step are not those of the layout
``op``          ``desc op n end_ns``: the nth op (from 1) of a group returned from ``wait()``
``error``       ``type text``: the exception that ends this rank
``end``         ``end_ns``: this rank ends in order
=============== ==========================================================================

Every line has ``rank``, the global rank.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Truth:
    """Writes the lines of one rank; with an empty path it writes nothing."""

    def __init__(self, path: str, rank: int) -> None:
        self._rank = rank
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644) if path else -1

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line."""
        if self._fd >= 0:
            line = json.dumps({"kind": kind, "rank": self._rank, **fields}) + "\n"
            os.write(self._fd, line.encode())

    @contextmanager
    def interval(self, kind: str, **fields: Any) -> Iterator[None]:
        """Append one line with the begin and the end of the block, unless it raises."""
        begin_ns = time.monotonic_ns()
        yield
        self.write(kind, begin_ns=begin_ns, end_ns=time.monotonic_ns(), **fields)


def read_truth(path: str | Path) -> list[dict[str, Any]]:
    """All lines of a truth file in the order in which they were written."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
