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


def main() -> None:
    """Prints one line per size."""
    print(f"{'records':>10} {'MB':>6} {'read M/s':>9} {'crc M/s':>8} {'segment M/s':>12} ratio")
    with tempfile.TemporaryDirectory() as directory:
        for n_records in SIZES_RECORDS:
            records = np.repeat(allreduce(1, 1.0), n_records)
            records["seq"] = np.arange(1, n_records + 1)
            path = Path(directory) / f"{n_records}.ciseg"
            path.write_bytes(segment_bytes(records, frame_records=FRAME_RECORDS))
            data = path.read_bytes()
            plain_s = best_seconds(path.read_bytes)
            crc_s = best_seconds(lambda d=data: zlib.crc32(d))
            segment_s = best_seconds(lambda p=path: read_segment(p))
            assert len(read_segment(path).records) == n_records
            rates = [n_records / s / 1e6 for s in (plain_s, crc_s, segment_s)]
            print(
                f"{n_records:>10} {len(data) / 1e6:>6.0f} {rates[0]:>9.1f} {rates[1]:>8.1f} "
                f"{rates[2]:>12.1f} {segment_s / plain_s:.2f}"
            )


if __name__ == "__main__":
    main()
