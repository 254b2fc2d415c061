"""Random activities on a grid, written as traces of the PyTorch profiler and read again: each sum
of the report is what the grid counts, and exposed and overlapped make up the communication."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.model.activity import Activity
from comminsight.model.exposed import ExposedReport, OwnerKind
from comminsight.model.ops import Op
from comminsight.pipeline.exposed import exposed_in_files
from tests.builders.activities import T0, US, comm, compute
from tests.builders.kineto import COALESCED, OLD_TORCH, ROCM, TEXTUAL, TORCH, Style, write_traces

CELLS, CELL_US, STEP_US, N_RANKS = 40, 10, 600, 2
OPS = (Op.ALL_REDUCE, Op.ALL_GATHER)


class Cell(NamedTuple):
    """One activity: cells from ``begin`` on, ``length`` of them; ``op`` 0 computes."""

    rank: int
    step: int
    stream: int
    begin: int
    length: int
    op: int


CELL = st.builds(
    Cell, st.integers(0, N_RANKS - 1), st.integers(0, 1), st.integers(7, 9),
    st.integers(0, CELLS - 12), st.integers(1, 12), st.sampled_from((0, 0, *map(int, OPS))),
)  # fmt: skip
TRACES = st.lists(CELL, min_size=1, max_size=14).filter(lambda own: any(one.op for one in own))


def activity(one: Cell) -> Activity:
    begin, length = one.step * STEP_US + one.begin * CELL_US, one.length * CELL_US
    more = {"step": one.step, "stream": one.stream}
    if not one.op:
        return compute(one.rank, begin, length, **more)
    return comm(one.rank, Op(one.op), begin, length, size_bytes=4096, **more)


def read_back(cells: list[Cell], style: Style) -> ExposedReport:
    """With one short activity at the start of each rank's step, so that every trace has both."""
    marks = [
        Cell(rank, step, 7, 0, 1, 0) for rank in range(N_RANKS) for step in range(2)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made = [activity(one) for one in (*marks, *cells)]
        return exposed_in_files([write_traces(Path(folder), made, N_RANKS, style)])


class Grid:
    """The same as sets of cells of (rank, instant)."""

    def __init__(self, cells: list[Cell]) -> None:
        marks = [Cell(rank, step, 7, 0, 1, 0) for rank in range(N_RANKS) for step in range(2)]
        self.compute: dict[int, np.ndarray] = defaultdict(self._none)
        self.communication: dict[tuple[int, int], np.ndarray] = defaultdict(self._none)
        self.op: dict[tuple[int, int], np.ndarray] = defaultdict(self._none)
        self.stream: dict[tuple[int, int], np.ndarray] = defaultdict(self._none)
        self.any: dict[tuple[int, int], np.ndarray] = defaultdict(self._none)
        for one in (*marks, *cells):
            begin = one.step * STEP_US // CELL_US + one.begin
            row = slice(begin, begin + one.length)
            self.any[one.rank, one.step][row] = True
            if one.op:
                self.communication[one.rank, one.step][row] = True
                self.op[one.rank, one.op][row] = True
                self.stream[one.rank, one.stream][row] = True
            else:
                self.compute[one.rank][row] = True

    @staticmethod
    def _none() -> np.ndarray:
        return np.zeros(2 * STEP_US // CELL_US, bool)

    def exposed(self, rank: int, cells: np.ndarray) -> int:
        return int((cells & ~self.compute[rank]).sum()) * CELL_US * US

    def of_rank(self, rank: int) -> tuple[int, int, int, int]:
        """Compute, communication, exposed, dark."""
        own = [self.communication[rank, step] for step in range(2)]
        dark = sum(
            int(np.ptp(np.flatnonzero(self.any[rank, step]))) + 1 - int(self.any[rank, step].sum())
            for step in range(2)
        )
        return (
            int(self.compute[rank].sum()) * CELL_US * US,
            sum(int(one.sum()) for one in own) * CELL_US * US,
            sum(self.exposed(rank, one) for one in own),
            dark * CELL_US * US,
        )


@pytest.mark.parametrize(
    "style", [TORCH, OLD_TORCH, ROCM, TEXTUAL, COALESCED],
    ids=("torch", "old", "rocm", "text", "coalesced"),
)  # fmt: skip
@given(cells=TRACES)
@settings(deadline=None, max_examples=25)
def test_a_trace_that_was_written_and_read_has_the_sums_of_the_grid(
    style: Style, cells: list[Cell]
) -> None:
    report, grid = read_back(cells, style), Grid(cells)
    for one in report.ranks:
        assert one.exposed_ns + one.overlapped_ns == one.communication_ns
        assert (one.compute_ns, one.communication_ns, one.exposed_ns, one.dark_ns) == grid.of_rank(
            one.global_rank
        )
    for one in report.steps:
        own = [grid.exposed(rank, grid.communication[rank, one.step]) for rank in range(N_RANKS)]
        assert one.exposed_ns == sum(own) / 2  # the median of two
    exposed_ns = sum(one.exposed_ns for one in report.ranks)
    for rows in (report.owners, report.roles, report.phases):
        assert sum(one.exposed_ns for one in rows) == exposed_ns


@given(cells=TRACES)
@settings(deadline=None, max_examples=25)
def test_ops_and_streams_are_those_of_the_grid(cells: list[Cell]) -> None:
    report, grid = read_back(cells, TORCH), Grid(cells)
    for one in report.ops:
        name = next(op for op in OPS if op.name.lower() == one.op)
        rows = [(rank, grid.op[rank, int(name)]) for rank in range(N_RANKS)]
        assert one.communication_ns == sum(int(own.sum()) for _, own in rows) * CELL_US * US
        assert one.exposed_ns == sum(grid.exposed(rank, own) for rank, own in rows)
        assert one.n_calls == sum(cell.op == name for cell in cells)
        assert all(call.start_ns >= T0 for call in one.calls)
    for stream in report.streams:
        own = grid.stream[stream.global_rank, stream.stream]
        assert stream.communication_ns == int(own.sum()) * CELL_US * US
        assert stream.exposed_ns == grid.exposed(stream.global_rank, own)


@given(cells=TRACES)
@settings(deadline=None, max_examples=25)
def test_only_a_rank_that_takes_part_is_ever_late(cells: list[Cell]) -> None:
    report = read_back(cells, TORCH)
    sending = {one.rank for one in cells if one.op}
    for one in report.owners:
        if one.kind is OwnerKind.LATE:
            assert one.global_rank in sending
            assert len(sending) == N_RANKS
