"""Ops of one rank as letters, and steps over them, for the rules that judge found steps.

A letter is an op of 1 ms, right behind the one before; "." is 1 ms of own work, "~" a pause.
"""

from __future__ import annotations

import numpy as np

from comminsight.model.ops import Op
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.semantics.comm_table import CommTable
from tests.builders import allgather, allreduce, comm_row, ops, reducescatter

MIB = 1 << 20
_MAKERS = {
    "g": (allgather, MIB),
    "s": (reducescatter, MIB),
    "A": (allreduce, MIB),  # gradients
    "B": (allreduce, 2 * MIB),
    "l": (allreduce, 4),  # a loss: one number
    "n": (allreduce, 64),  # a norm of 16 numbers
}


def rows(letters: str, pause_ms: float = 5.0) -> np.ndarray:
    """The ops (``OP_DTYPE``), numbered from 1."""
    at_ms = 10.0
    batch: list[np.ndarray] = []
    for letter in letters:
        if letter in _MAKERS:
            maker, size = _MAKERS[letter]
            batch.append(maker(len(batch) + 1, at_ms, size=size))
        at_ms += pause_ms if letter == "~" else 1.0
    return ops(*batch)


def comms() -> CommTable:
    """One communicator over all ranks."""
    table = CommTable(4)
    table.add(comm_row(1, "0-3", 0, desc=b"default_pg"))
    return table


def steps(batch: np.ndarray, bounds: list[tuple[int, int]]) -> list[StepSummary]:
    """Steps from one op to another, given as their numbers."""
    starts = batch["start_ns"].tolist()
    ends = batch["end_ns"].tolist()
    at = [(starts[first - 1], ends[last - 1]) for first, last in bounds]
    nexts = [start for start, _ in at[1:]]
    return [
        StepSummary(
            session_id="s", global_rank=0, step=step, template="t", template_version=1,
            template_file_version=1, first=_EVIDENCE, last=_EVIDENCE, start_ns=start, end_ns=end,
            span_ns=end - start, first_seq=first, last_seq=last,
            period_ns=nexts[step] - start if step < len(nexts) else 0,
            gap_ns=nexts[step] - end if step < len(nexts) else 0,
        )
        for step, ((first, last), (start, end)) in enumerate(zip(bounds, at, strict=True))
    ]  # fmt: skip


def even(n_steps: int, n_ops: int, n_between: int = 0) -> list[tuple[int, int]]:
    """Bounds of steps of so many ops, with so many between two of them."""
    each = n_ops + n_between
    return [(each * step + 1, each * step + n_ops) for step in range(n_steps)]


_EVIDENCE = StepEvidence(
    comm_hash=1, comm_index=1, role="GLOBAL", op=Op.ALL_REDUCE, op_seq=1, match_seq=1, func_seq=0,
    size_bytes=MIB, start_ns=0, seq=1,
)  # fmt: skip
