"""What nccl-tests writes with -J."""

import json
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.format.nccl_tests_json import is_nccl_tests_json, parse_nccl_tests_json
from comminsight.model.ops import Op


def part(alg: float, bus: float, wrong: float | None = 0.0) -> dict[str, Any]:
    return {"time": 12.5, "alg_bw": alg, "bus_bw": bus, "nwrong": wrong}


def result(size: int, **parts: Any) -> dict[str, Any]:
    whole = {"out_of_place": part(100.0, 187.5), "in_place": part(101.0, 189.4), **parts}
    return {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
            **whole, "actual_iterations": 20, "experiment_name": "all_reduce"}  # fmt: skip


def report(*results: dict[str, Any], program: str = "./build/all_reduce_perf", n: int = 16) -> str:
    devices = [{"rank": k, "group": 0, "pid": 7 + k, "hostname": f"gpu{k // 8}", "device": k % 8,
                "device_hex": "0x1b", "device_info": "NVIDIA H100"} for k in range(n)]  # fmt: skip
    return json.dumps(
        {"version": 2, "start_time": "2026-05-04 06:00:00", "args": [program, "-J", "x"],
         "env": ["TOKEN=secret"], "nccl_version": 22703,
         "config": {"nthreads": 1, "devices": devices},
         "results": list(results), "end_time": "2026-05-04 06:01:00"}
    )  # fmt: skip


@pytest.mark.parametrize(("program", "op"), [
    ("./build/all_reduce_perf", Op.ALL_REDUCE), ("/opt/tests/alltoall_perf_mpi", Op.ALL_TO_ALL),
    ("sendrecv_perf", Op.SEND),
])  # fmt: skip
def test_rows(program: str, op: Op) -> None:
    text = report(result(1 << 20), result(1 << 30), program=program)
    assert is_nccl_tests_json(text.encode())
    found = parse_nccl_tests_json(text)
    assert (found.op, found.n_ranks, found.hosts) == (op, 16, ("gpu0", "gpu1"))
    assert [(row.size_bytes, row.busbw_gbs) for row in found.rows] == [
        (1 << 20, 187.5), (1 << 30, 187.5),
    ]  # fmt: skip


def test_in_place_alone_and_what_does_not_read() -> None:
    text = report(
        result(1 << 20, out_of_place=None),
        result(1 << 21, out_of_place=part(9, "nan"), in_place=None),  # type: ignore[arg-type]
        result(1 << 22, out_of_place=part(9.0, 16.9, wrong=3.0)),
        result(1 << 23, out_of_place=part(9.0, 16.9, wrong=None)),
    )
    found = parse_nccl_tests_json(text)
    assert [row.busbw_gbs for row in found.rows] == [189.4, 16.9, 16.9]
    assert (found.n_bad, found.n_wrong) == (1, 3)


def test_the_op_of_an_unknown_program() -> None:
    """By the factor of sixteen ranks, or by the name of the file."""
    text = report(result(1 << 26), program="bench")
    assert parse_nccl_tests_json(text).op is Op.ALL_REDUCE
    assert parse_nccl_tests_json(text, file_name="reduce-scatter.json").op is Op.REDUCE_SCATTER


@pytest.mark.parametrize("text", [
    report(result(1 << 20))[:-40], report(), report(result(-1)),
    report(result(1 << 20)).replace('"results": [', '"results": [7, '),
    '{"version": 2, "start_time": "", "args": [' + "[" * 100_000,
])  # fmt: skip
def test_what_is_refused(text: str) -> None:
    assert is_nccl_tests_json(text.encode())
    with pytest.raises(InputError, match=r"x\.json: "):
        parse_nccl_tests_json(text, path="x.json")
