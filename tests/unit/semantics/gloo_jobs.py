"""Captured gloo jobs with true step marks, as batches in arrival order.

Arrival is the order of completion, as a recorder writes; an op without a visible end arrives at
its start. The marks are the truth and never reach the engine.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comminsight.model.ops import P2P_OPS, DType, Op, OpState, RecordKind
from comminsight.model.topology import SessionIdentity
from tests.builders import comm_row, comm_rows, identity, ops, record

_OPS = {
    "allreduce": Op.ALL_REDUCE,
    "allgather": Op.ALL_GATHER,
    "allgather_into_tensor": Op.ALL_GATHER,
    "allgather_base": Op.ALL_GATHER,
    "reduce_scatter_tensor": Op.REDUCE_SCATTER,
    "reduce_scatter_base": Op.REDUCE_SCATTER,
    "broadcast": Op.BROADCAST,
    "scatter": Op.SCATTER,
    "send": Op.SEND,
    "recv": Op.RECV,
}
_HSDP_MEMBERS = {
    "mesh_dp_shard": ([0, 1], [2, 3]),
    "mesh_dp_replicate": ([0, 2], [1, 3]),
}


@dataclass(frozen=True)
class GlooRank:
    """One rank of a captured job."""

    identity: SessionIdentity
    comms: np.ndarray
    batch: np.ndarray
    marks_ns: list[int]


def samples_folder() -> Path:
    """The folder of captured jobs; skips the test where it is absent."""
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("COMMINSIGHT_SAMPLES", root.parent / "shared" / "samples"))
    if not (folder / "own-gloo").is_dir():
        pytest.skip(f"captured jobs are not here: {folder / 'own-gloo'}")
    return folder / "own-gloo"


def load_rank(job: str, rank: int) -> GlooRank:
    """One rank of ``job``."""
    folder = samples_folder()
    world_size = len(list(folder.glob(f"{job}.rank*.jsonl")))
    lines = (folder / f"{job}.rank{rank}.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    calls = [event for event in events if "op" in event]
    groups = {call["group"]: call["desc"] for call in calls}
    index = {group: position for position, group in enumerate(groups, 1)}
    rows = [_record(call, index[call["group"]]) for call in calls]
    batch = ops(*sorted(rows, key=lambda row: max(int(row["end_ns"][0]), int(row["start_ns"][0]))))
    batch["seq"] = batch["seq_low"] = np.arange(1, len(batch) + 1)
    comms = comm_rows(
        *(
            comm_row(
                index[group], _members(desc, rank, world_size), rank, name=group.encode(),
                desc=desc.encode(),
            )
            for group, desc in groups.items()
        )
    )  # fmt: skip
    marks_ns = [event["t"] for event in events if "mark" in event]
    return GlooRank(identity(rank, world_size), comms, batch, marks_ns)


def _members(desc: str, rank: int, world_size: int) -> list[int]:
    lists = _HSDP_MEMBERS.get(desc, (list(range(world_size)),))
    return next(members for members in lists if rank in members)


def _record(call: dict[str, Any], comm_index: int) -> np.ndarray:
    op = _OPS[call["op"]]
    sides = [side for side in (call["in"], call["out"]) if side]
    shape, dtype, _ = sides[0][0]
    return record(
        kind=RecordKind.P2P if op in P2P_OPS else RecordKind.COLLECTIVE, op=op,
        enqueue_ns=call["t_enqueue"], start_ns=call["t_enqueue"], end_ns=call["t_end"] or 0,
        count=math.prod(shape), size_bytes=max(sum(t[2] for t in side) for side in sides),
        comm_index=comm_index, op_seq=call["seq"], match_seq=call["seq"],
        dtype=DType[dtype.upper()], peer_or_root=-1 if (peer := call.get("peer")) is None else peer,
        state=OpState.DONE,
    )  # fmt: skip
