"""MB/s of reading profiler traces (uncompressed JSON, per core), beside what the parser allows.

Run: ``python benchmarks/kineto_read.py [TRACE...]``; without traces one is made. CPU seconds, best
of three. *bare* decodes the same bytes into the smallest typed struct (one text of each event),
*fields* into all fields that the reader looks at: no reader on this parser is faster than these.
Memory is the growth of the peak over that of an interpreter that imported the reader, over the
uncompressed size, measured in a process of its own.
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

import msgspec
from tests.builders.activities import comm, compute, in_steps
from tests.builders.kineto import rank_trace, write_trace

from comminsight.format.expanding import expanded_bytes
from comminsight.format.kineto import MAX_TRACE_BYTES, read_kineto
from comminsight.format.kineto_events import Event
from comminsight.model.ops import Op

REPEATS = 3
N_STEPS, N_KERNELS = 40, 700
PADDING = {"Ev Idx": 1, "Record function id": 0, "Input Dims": [[1024, 1024], [], [4]] * 2}


class BareEvent(msgspec.Struct, gc=False):
    """As little of an event as tells its kind."""

    ph: str = ""


class BareDocument(msgspec.Struct):
    """A trace of such events."""

    events: list[BareEvent] = msgspec.field(name="traceEvents")


class WholeDocument(msgspec.Struct):
    """A trace of all fields that are looked at."""

    events: list[Event] = msgspec.field(name="traceEvents")


def made_trace(place: Path) -> Path:
    """One with as many host events as real ones have: six for each kernel."""
    step = [compute(0, 100.0 * n, 90) for n in range(N_KERNELS)]
    step += [comm(0, Op.ALL_REDUCE, 900.0 * n, 500, size_bytes=1 << 20) for n in range(70)]
    document = rank_trace(0, 8, in_steps(step, N_STEPS, 80_000))
    events = document["traceEvents"]
    host = [
        {**one, "pid": 4000, "cat": "cpu_op", "name": f"aten::op_{k}", "args": PADDING}
        for one in events for k in range(2) if one["ph"] == "X"
    ]  # fmt: skip
    return write_trace(place, {**document, "traceEvents": events + host})


def seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def growth_ratio(place: Path) -> float:
    """Peak memory of reading the file, over its expanded bytes."""
    told = subprocess.run(
        [sys.executable, __file__, "--peak", str(place)], check=True, capture_output=True
    )
    return float(told.stdout)


def peak_bytes() -> int:
    """The peak of this program: what the kernel counts across ``exec`` would be its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def print_growth(place: Path) -> None:
    before = peak_bytes()
    with place.open("rb") as stream:
        read_kineto(stream, path=str(place))
    grown = peak_bytes() - before
    print(grown / len(expanded_bytes(place.read_bytes(), max_bytes=MAX_TRACE_BYTES)))


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        print_growth(Path(sys.argv[2]))
        return
    with TemporaryDirectory() as folder:
        places = [*map(Path, sys.argv[1:])] or [made_trace(Path(folder) / "made_rank0.json")]
        print(
            "MB/s of:                       MB       read       bare     fields       json   memory"
        )
        for place in places:
            data = expanded_bytes(place.read_bytes(), max_bytes=MAX_TRACE_BYTES)
            size = len(data) / 1e6
            speeds = [
                size / seconds(call)
                for call in (
                    lambda data=data: read_kineto(io.BytesIO(data)),
                    lambda data=data: msgspec.json.decode(data, type=BareDocument),
                    lambda data=data: msgspec.json.decode(data, type=WholeDocument),
                    lambda data=data: json.loads(data),
                )
            ]
            row = "".join(f"{speed:11.0f}" for speed in speeds)
            print(f"{place.name[:26]:26} {size:7.1f}{row}   {growth_ratio(place):5.2f} x")


if __name__ == "__main__":
    main()
