"""Records/s of reading NCCL Inspector files (per core), beside json.loads and DuckDB.

Run: ``python benchmarks/inspector_read.py [FILE...]``; without files some are made: plain lines of
v4.0, the same of several communicators, functions and sizes, and a stream of v4.3 in which records
of the proxy stand for most lines. CPU seconds, all in one process; each of five rounds reads the
file in all ways in turn, and the median of the ratios in a round is told, with the least and the
most. Memory is the peak of a process of its own that reads the file.
"""

from __future__ import annotations

import io
import json
import random
import statistics
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

ROUNDS = 5
COMMS = ("TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP", "EP")
FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
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
    """CPU seconds of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


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
    query = by_duckdb(path)
    rounds = [
        (cpu_s(lambda: read_inspector(io.BytesIO(text))), cpu_s(lambda: loads(text)), cpu_s(query))
        for _ in range(ROUNDS)
    ]
    own_s = statistics.median(own for own, _, _ in rounds)
    ratios = sorted(loads_s / own for own, loads_s, _ in rounds)
    duck = statistics.median(loads_s / duck_s for _, loads_s, duck_s in rounds)
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    before, peak = (int(one) / 1024 for one in ran.stdout.split())
    return (
        f"{path.name}: {n_lines:,} lines of {len(text) // n_lines} B,"
        f" {n_lines / own_s / 1e6:.2f} M/s, {statistics.median(ratios):.1f} x json.loads"
        f" ({ratios[0]:.1f} to {ratios[-1]:.1f}; DuckDB {duck:.1f} x),"
        f" peak {peak:.0f} MB of which {before:.0f} MB before reading"
    )


def made(place: Path) -> list[Path]:
    """The files that are read if none is given."""
    plain, mixed, stream = (
        place / f"{one}.log" for one in ("plain-v4.0", "mixed-v4.0", "stream-v4.3")
    )
    plain.write_bytes(inspector_text(0, 8, range(N_RECORDS), per_dump=500))
    numbers = range(N_STREAMED)
    stream.write_bytes(inspector_text(0, 8, numbers, version="v4.3", n_proxy=N_PROXY))
    mixed.write_bytes(mixed_text(N_RECORDS))
    return [plain, mixed, stream]


def mixed_text(n_records: int) -> bytes:
    """Lines of a seeded mix of communicators, functions, sizes and bandwidths."""
    draw = random.Random(7)
    lines = inspector_text(0, 8, range(n_records), per_dump=500).splitlines()
    for n, line in enumerate(lines):
        document = json.loads(line)
        comm = draw.choice(COMMS)
        document["header"] |= {"comm_name": comm, "id": f"0x{len(comm):x}a51c", "n_ranks": 64}
        perf = document["coll_perf"]
        perf["coll"] = draw.choice(FUNCTIONS)
        perf["coll_msg_size_bytes"] = 4 * draw.randrange(1, 1 << draw.randrange(1, 30))
        perf["coll_exec_time_us"] = draw.randrange(10, 1 << draw.randrange(5, 20))
        perf["coll_algobw_gbs"] = round(draw.uniform(0, 300), 6)
        perf["coll_busbw_gbs"] = round(draw.uniform(0, 300), 6)
        lines[n] = json.dumps(document, separators=(",", ":")).encode()
    return b"\n".join(lines) + b"\n"


def main() -> None:
    """Prints a line for each file."""
    with TemporaryDirectory() as place:
        for path in [Path(one) for one in sys.argv[1:]] or made(Path(place)):
            print(told(path))


if __name__ == "__main__":
    main()
