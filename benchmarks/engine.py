"""Throughput and memory of the semantic engine, with all shipped templates.

    python benchmarks/engine.py [records in millions]

The stream is a Megatron-like rank (TP all-reduces, pipeline sends and receives, gradient
reduction, the closing one-element all-reduce), dumped communicator by communicator, in batches as
a segment reader gives them. CPU time of this process counts, so neighbours disturb little. The
plain stable sort of the same batches is the baseline of the same run.
"""

from __future__ import annotations

import sys
import time
import tomllib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import comminsight.semantics
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.ops import DType, Op, OpState, RecordKind
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template import Template
from comminsight.semantics.template_file import parse_template_file

TEMPLATES = Path(comminsight.semantics.__file__).parent / "templates"
GLOBAL, TP, PP, DP = 1, 2, 3, 4
GAP_NS = 1_000_000
BATCH = 16_384


def templates() -> list[Template]:
    return [
        template
        for path in sorted(TEMPLATES.glob("*.toml"))
        for template in parse_template_file(tomllib.loads(path.read_text()), str(path)).templates
    ]


def comms() -> np.ndarray:
    rows = np.zeros(4, COMM_DTYPE)
    rows["comm_index"] = [GLOBAL, TP, PP, DP]
    rows["comm_size"] = [64, 8, 4, 2]
    rows["comm_rank"] = [16, 0, 1, 0]
    rows["desc"] = [b"default_pg", b"mesh_tp", b"mesh_pp", b"mesh_dp"]
    rows["comm_hash"] = np.arange(1, 5)
    return rows


def one_step() -> np.ndarray:
    """206 ops: 4 microbatches forward, 4 backward, each a receive, 23 all-reduces, a send;
    gradients; the anchor."""
    half = [(PP, Op.RECV, 1 << 20), *[(TP, Op.ALL_REDUCE, 1 << 20)] * 23, (PP, Op.SEND, 1 << 20)]
    ops = [*half * 8, *[(DP, Op.ALL_REDUCE, 25 << 20)] * 5, (GLOBAL, Op.ALL_REDUCE, 4)]
    step = np.zeros(len(ops), OP_DTYPE)
    step["comm_index"], step["op"], step["size_bytes"] = np.array(ops).T
    step["count"] = step["size_bytes"] // 4
    step["dtype"] = DType.FLOAT32
    step["state"] = OpState.DONE
    is_ahead = np.cumsum(step["op"] == Op.RECV) <= 4  # from stage 0 on to stage 2, then back
    step["peer_or_root"] = np.where((step["op"] == Op.SEND) == is_ahead, 2, 0)
    step["kind"] = np.where(np.isin(step["op"], (Op.SEND, Op.RECV)), RecordKind.P2P, 1)
    return step


def batches(n_records: int, *, dump: int = 200) -> Iterator[np.ndarray]:
    """Batches in arrival order: each ``dump`` consecutive ops come communicator by communicator."""
    step = one_step()
    for first in range(0, n_records, BATCH):
        position = np.arange(first, min(first + BATCH, n_records))
        batch = step[position % len(step)]
        batch["start_ns"] = batch["enqueue_ns"] = (position + 1) * GAP_NS
        batch["end_ns"] = batch["start_ns"] + GAP_NS // 2
        batch["op_seq"] = batch["match_seq"] = position + 1
        batch = batch[np.lexsort((position, batch["comm_index"], position // dump))]
        batch["seq"] = position + 1
        yield batch


def run(n_records: int) -> tuple[float, int, SessionEngine]:
    """(CPU seconds in the engine, steps, engine)."""
    engine = SessionEngine(templates(), identity=SessionIdentity(session_id="s", world_size=64))
    engine.add_comms(comms())
    spent_s, n_steps = 0.0, 0
    for batch in batches(n_records):
        begin_s = time.process_time()
        n_steps += len(engine.push(batch))
        spent_s += time.process_time() - begin_s
    begin_s = time.process_time()
    n_steps += len(engine.finish())
    return spent_s + time.process_time() - begin_s, n_steps, engine


def sort_only(n_records: int) -> float:
    """CPU seconds of the stable sort by start and the copy of the rows, nothing else."""
    spent_s = 0.0
    for batch in batches(n_records):
        begin_s = time.process_time()
        words = batch.view(np.int64).reshape(-1, 16)
        words.take(np.argsort(np.ascontiguousarray(batch["start_ns"]), kind="stable"), axis=0)
        spent_s += time.process_time() - begin_s
    return spent_s


def peak_mib(n_records: int) -> float:
    """Largest traced memory while the stream is fed, without the steps it returns."""
    tracemalloc.start()
    run(n_records)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (1 << 20)


def main() -> None:
    n_records = round(float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e6)
    run(n_records // 10)
    results = [run(n_records) for _ in range(3)]
    spent_s = min(result[0] for result in results)
    _, n_steps, engine = results[0]
    baseline_s = min(sort_only(n_records) for _ in range(3))
    assert n_steps == n_records // len(one_step()), (n_steps, engine.state)
    print(f"engine: {n_records / spent_s / 1e6:.1f} M records/s/core ({n_steps} steps)")
    print(f"sort only: {n_records / baseline_s / 1e6:.1f} M records/s/core")
    print(f"ratio engine / sort only: {spent_s / baseline_s:.1f} x the time")
    short, long = peak_mib(n_records // 10), peak_mib(n_records)
    print(f"peak memory: {short:.1f} MiB at 1x, {long:.1f} MiB at 10x length")


if __name__ == "__main__":
    main()
