"""Which files are records of a benchmark: told by how they begin."""

from __future__ import annotations

import re
from pathlib import Path

from comminsight.format.regular_file import read_regular

HEAD_BYTES = 4096
MAX_FILES = 10_000
_HEAD = re.compile(
    rb'\s*\{\s*"schema_version"\s*:\s*"[^"]{1,16}"\s*,\s*"workload_id"\s*:\s*"[^"]{0,2048}"\s*,'
    rb'\s*"label"\s*:'
)


def bench_records(path: Path) -> list[Path]:
    """``path`` where it is a record, those in it where it is a folder; none where it is anything
    else, or cannot be read: whoever reads it then says why."""
    try:
        inside = sorted(path.glob("*.json"))[:MAX_FILES] if path.is_dir() else [path]
        return [one for one in inside if _is_record(one)]
    except OSError:
        return []


def _is_record(path: Path) -> bool:
    return _HEAD.match(read_regular(path, HEAD_BYTES) or b"") is not None
