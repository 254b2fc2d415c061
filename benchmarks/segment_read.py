"""Records per second of reading segments from the page cache, against a plain read of the file."""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.builders import allreduce, segment_bytes

from comminsight.format.segment import read_segment

SIZES_RECORDS = (100_000, 400_000, 2_000_000)
FRAME_RECORDS = 512


def best_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """CPU time of the cheapest of ``repeats`` calls, so that busy neighbours do not count."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def read_seconds(folder: Path, n_records: int, repeats: int = 5) -> tuple[int, dict[str, float]]:
    """(bytes of the segment, CPU seconds of reading it in three ways)."""
    records = np.repeat(allreduce(1, 1.0), n_records)
    records["seq"] = np.arange(1, n_records + 1)
    path = folder / f"{n_records}.ciseg"
    path.write_bytes(segment_bytes(records, frame_records=FRAME_RECORDS))
    data = path.read_bytes()
    assert len(read_segment(path).records) == n_records
    costs = {
        "plain": best_seconds(path.read_bytes, repeats),
        "crc": best_seconds(lambda: zlib.crc32(data), repeats),
        "segment": best_seconds(lambda: read_segment(path), repeats),
    }
    return len(data), costs


def main() -> None:
    """Prints one line per size."""
    print(f"{'records':>10} {'MB':>6} {'read M/s':>9} {'crc M/s':>8} {'segment M/s':>12} ratio")
    with tempfile.TemporaryDirectory() as directory:
        for n_records in SIZES_RECORDS:
            n_bytes, costs = read_seconds(Path(directory), n_records)
            plain, crc, segment = (n_records / cost_s / 1e6 for cost_s in costs.values())
            print(
                f"{n_records:>10} {n_bytes / 1e6:>6.0f} {plain:>9.1f} {crc:>8.1f} "
                f"{segment:>12.1f} {costs['segment'] / costs['plain']:.2f}"
            )


if __name__ == "__main__":
    main()
