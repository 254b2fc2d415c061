"""Records/s of reading NCCL Inspector files (per core), beside json.loads and DuckDB.

Run: ``python benchmarks/inspector_read.py [FILE...]``; without files some are made: plain lines of
v4.0, and a stream of v4.3 in which records of the proxy stand for most lines. CPU seconds, best of
three, all in one process; memory is the peak of a process of its own that reads the file.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import duckdb
from tests.builders.inspector import inspector_text

from comminsight.format.inspector_json import read_inspector

REPEATS = 3
N_RECORDS, N_STREAMED, N_PROXY = 200_000, 25_000, 40
QUERY = """
SELECT header.id, header.rank, coll_perf.coll, coll_perf.coll_sn, coll_perf.coll_msg_size_bytes,
    coll_perf.coll_exec_time_us, coll_perf.coll_timing_source
FROM read_json(?, format='newline_delimited', columns={
    header: 'STRUCT(id VARCHAR, rank INT, n_ranks INT)',
    coll_perf: 'STRUCT(coll VARCHAR, coll_sn BIGINT, coll_msg_size_bytes UBIGINT,
        coll_exec_time_us BIGINT, coll_timing_source VARCHAR)'})
"""
PEAK = """
import sys
from pathlib import Path
from comminsight.format.inspector_json import read_inspector
def peak_kib():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak_kib()
found = read_inspector(open(sys.argv[1], "rb"))
print(before, peak_kib())
"""


def cpu_s(work: Callable[[], object]) -> float:
    """The best of the repeats."""
    taken = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return min(taken)


def loads(text: bytes) -> None:
    """Each line by the standard library, and nothing done with it."""
    for line in text.split(b"\n"):
        if line:
            json.loads(line)


def by_duckdb(path: Path) -> Callable[[], object]:
    """The same columns by DuckDB on one thread."""
    base = duckdb.connect()
    base.execute("SET threads=1")
    return lambda: base.execute(QUERY, [str(path)]).fetchnumpy()


def told(path: Path) -> str:
    """One line on one file."""
    text = path.read_bytes()
    n_lines = text.count(b"\n")
    own_s = cpu_s(lambda: read_inspector(io.BytesIO(text)))
    loads_s = cpu_s(lambda: loads(text))
    duck_s = cpu_s(by_duckdb(path))
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    before, peak = (int(one) / 1024 for one in ran.stdout.split())
    return (
        f"{path.name}: {n_lines:,} lines of {len(text) // n_lines} B,"
        f" {n_lines / own_s / 1e6:.2f} M/s, {loads_s / own_s:.1f} x json.loads"
        f" (DuckDB {loads_s / duck_s:.1f} x),"
        f" peak {peak:.0f} MB of which {before:.0f} MB before reading"
    )


def made(place: Path) -> list[Path]:
    """The files that are read if none is given."""
    plain, stream = place / "plain-v4.0.log", place / "stream-v4.3.log"
    plain.write_bytes(inspector_text(0, 8, range(N_RECORDS), per_dump=500))
    numbers = range(N_STREAMED)
    stream.write_bytes(inspector_text(0, 8, numbers, version="v4.3", n_proxy=N_PROXY))
    return [plain, stream]


def main() -> None:
    """Prints a line for each file."""
    with TemporaryDirectory() as place:
        for path in [Path(one) for one in sys.argv[1:]] or made(Path(place)):
            print(told(path))


if __name__ == "__main__":
    main()
