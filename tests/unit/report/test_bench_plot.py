"""Pictures of benchmarks: the same for the same records, and with every launch in them."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from comminsight.analysis.bench_statistics import bench_row
from comminsight.model.bench import BenchRecord, Metrics
from comminsight.report.bench_plot import drawn


def record(algorithm: str, *collectives: str, sizes: tuple[int, ...] = (1024, 4096)) -> BenchRecord:
    rows = [
        bench_row(name, size, [[0.001 * size, 0.002 * size]] * 2)
        for name in collectives
        for size in sizes
    ]
    return BenchRecord(
        workload_id="w", label="l", backend="mpi", dtype="float32", world_size=2, warmup=0,
        repeats=2, algorithm_requested=algorithm, metrics=Metrics(rows=tuple(rows)),
    )  # fmt: skip


def words(records: list[BenchRecord]) -> list[str]:
    return re.findall(r">([^<>]+)</text>", drawn(records, form="svg").decode())


def test_every_launch_and_collective_has_its_place() -> None:
    said = words([record("Ring", "all_reduce", "broadcast"), record("Tree", "all_reduce")])
    assert said.count("all_reduce") == said.count("broadcast") == 2  # time and busbw
    assert {"l: mpi Ring", "l: mpi Tree", "time [ms]", "busbw [GB/s]"} <= set(said)


@pytest.mark.parametrize("form", ["svg", "png"])
def test_equal_records_give_equal_pictures(form: str) -> None:
    records = [record("Ring", "all_reduce")]
    picture = drawn(records, form=form)
    assert picture == drawn(records, form=form)
    assert picture.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    slower = [replace(records[0], metrics=record("Ring", "all_reduce", sizes=(9, 99)).metrics)]
    assert picture != drawn(slower, form=form)


def test_a_failed_launch_is_no_line() -> None:
    said = words([record("Ring"), record("Tree", "all_reduce", sizes=(8,))])
    assert "l: mpi Tree" in said
    assert "l: mpi Ring" not in said
    assert "nothing was measured" in words([record("Ring")])
