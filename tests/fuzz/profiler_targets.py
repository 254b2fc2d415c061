"""Readers of profilers other than PyTorch's, with good inputs to start from."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from comminsight.errors import InputError
from comminsight.format.ascend import AscendRank
from comminsight.format.ascend_csv import read_kernel_details, read_step_trace_time
from comminsight.format.ascend_json import read_communication, read_communication_matrix
from comminsight.format.ascend_trace import read_trace_view
from comminsight.format.inspector_batch import by_process, timed_ops
from comminsight.format.inspector_json import is_inspector, read_inspector
from comminsight.pipeline.ascend_profiles import is_ascend
from comminsight.pipeline.trace_files import read_traces
from tests.builders.inspector import inspector_text
from tests.builders.nsys import database, nsys_tables
from tests.unit.format.test_ascend import COMMUNICATION, KERNELS, MATRIX, VIEW

ASCEND: tuple[Callable[..., object], ...] = (
    read_kernel_details, read_communication, read_communication_matrix, read_trace_view,
)  # fmt: skip


def read_ascend(data: bytes, _: random.Random) -> None:
    """By every reader: which one takes a file is told by its beginning alone."""
    is_ascend(data)
    for read in ASCEND:
        try:
            read(io.BytesIO(data), AscendRank(), path="fuzzed")
        except InputError:
            continue
    read_step_trace_time(io.BytesIO(data), path="fuzzed")


def read_lines(data: bytes, rng: random.Random) -> None:
    is_inspector(data)
    found = read_inspector(io.BytesIO(data), block_bytes=rng.choice((1, 300, 1 << 20)))
    for one in by_process(found.rows, found.contexts):
        timed_ops(one, 0)


def read_database(data: bytes, _: random.Random) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.sqlite"
        path.write_bytes(data)
        read_traces(path)


def ascend_files() -> list[bytes]:
    texts = (KERNELS, *map(json.dumps, (COMMUNICATION, MATRIX, VIEW)))
    return [text.encode() for text in texts]


def inspector_files() -> list[bytes]:
    return [
        inspector_text(0, 2, range(6), version=version, n_proxy=2, per_dump=3)
        for version in ("v4.0", "v4.3")
    ]


def databases() -> list[bytes]:
    with TemporaryDirectory() as folder:
        return [database(Path(folder) / "a.sqlite", nsys_tables((100, 200), world=2)).read_bytes()]
