"""Reads Flight Recorder dumps for another process, as ``log_worker`` reads logs."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from comminsight.format.flight_recorder import entry_layouts
from comminsight.pipeline.flight_recorder_file import plain_dump
from comminsight.pipeline.packed_dump import PackedDump, packed
from comminsight.pipeline.reading_pool import serve

LAYOUTS = entry_layouts()


def packed_dump(path: Path) -> PackedDump:
    """The dump at ``path``; raises InputError or OSError."""
    return packed(plain_dump(path, LAYOUTS))


if __name__ == "__main__":
    gc.disable()  # it lives for one answer
    serve(packed_dump, sys.stdin.buffer, sys.stdout.buffer)
