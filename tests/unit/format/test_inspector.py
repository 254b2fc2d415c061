from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from comminsight.format.inspector import (
    FOLDED,
    NO_COMMUNICATOR,
    NO_SUCH_FUNCTION,
    NOT_ENDED,
    InspectorLines,
)
from comminsight.model.bandwidth import bus_factor
from comminsight.model.ops import Op, OpState, TimingSource
from tests.builders import (
    MS,
    Stream,
    allgather,
    allreduce,
    barrier,
    comm_row,
    comm_rows,
    drain,
    identity,
    open_marker,
    ops,
    recv,
    send,
)

COMMS = comm_rows(
    comm_row(1, "0-7", me=2, comm_hash=0xABC, n_nodes=2, desc=b"DP_GROUP"),
    comm_row(2, "2,6", me=2, comm_hash=0xDEF),
)


def emitted(records: np.ndarray) -> tuple[list[dict[str, Any]], dict[str, int]]:
    lines = InspectorLines(identity(2, host="node7"), COMMS, records)
    return [json.loads(line) for line in lines], {k: n for k, n in lines.skipped.items() if n}


def test_a_collective_line() -> None:
    (line,), skipped = emitted(ops(allreduce(1, 10.0, ms=2, size=8_000_000)))
    wall_us = (identity(2).created_real_ns - identity(2).created_mono_ns) // 1000
    assert line == {
        "header": {"id": "0xabc", "comm_name": "DP_GROUP", "rank": 2, "n_ranks": 8, "nnodes": 2},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "comminsight-0.1.0",
            "rec_mechanism": "comminsight",
            "dump_timestamp_us": wall_us + 12_000,
            "hostname": "node7",
            "pid": 1002,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": 0,
            "coll_msg_size_bytes": 8_000_000,
            "coll_exec_time_us": 2000,
            "coll_timing_source": "collective_cpu",
            "coll_algobw_gbs": 4.0,
            "coll_busbw_gbs": 7.0,
        },
    }
    assert skipped == {}


def test_a_p2p_line() -> None:
    (line,), _ = emitted(ops(recv(1, 10.0, ms=1, size=1_000_000, comm=2, peer=1)))
    assert line["header"]["comm_name"] == "unknown"
    assert line["p2p_perf"] == {
        "p2p": "Recv",
        "p2p_sn": 0,
        "p2p_peer": 1,
        "p2p_msg_size_bytes": 1_000_000,
        "p2p_exec_time_us": 1000,
        "p2p_timing_source": "collective_cpu",
        "p2p_algobw_gbs": 1.0,
        "p2p_busbw_gbs": 1.0,
    }


def test_serials_count_per_communicator_and_function_in_program_order() -> None:
    stream = Stream()
    stream.allreduce(1.0)
    stream.allgather(2.0)
    stream.allreduce(3.0)
    stream.allreduce(4.0, comm=2)
    rows = stream.batch()
    rows = rows[[2, 0, 1, 3]]  # the first all_reduce ended after the second
    lines, _ = emitted(rows)
    assert [line["coll_perf"]["coll_sn"] for line in lines] == [1, 0, 0, 0]


def test_the_librarys_own_counter_is_kept() -> None:
    rows = ops(allreduce(1, 1.0, func_seq=0), allreduce(2, 2.0, func_seq=1), allgather(3, 3.0))
    rows = np.delete(rows, 0)  # the first was lost: counting would give 0
    lines, _ = emitted(rows)
    assert [line["coll_perf"]["coll_sn"] for line in lines] == [1, 0]


def test_device_stamps_come_first() -> None:
    stamps = {"gpu_start_ns": 5 * MS, "gpu_end_ns": 6 * MS}
    callback = {"timing_source": TimingSource.HOST_KERNEL_CALLBACK}
    lines, _ = emitted(ops(allreduce(1, 1.0, ms=9, **stamps), allreduce(2, 1.0, ms=9, **callback)))
    found = [
        (line["coll_perf"]["coll_exec_time_us"], line["coll_perf"]["coll_timing_source"])
        for line in lines
    ]
    assert found == [(1000, "kernel_gpu"), (9000, "kernel_cpu")]


def test_ops_that_cannot_have_a_line_are_counted_by_reason() -> None:
    lines, skipped = emitted(
        ops(
            open_marker(allreduce(0, 1.0), 1),
            allreduce(2, 1.0, state=OpState.ABORTED),
            barrier(3, 2.0),
            send(4, 3.0, comm=2, n_folded=20),
            allreduce(5, 4.0, comm=9),
            drain(6, 5.0),
        )
    )
    assert lines == []
    assert skipped == {NOT_ENDED: 1, NO_SUCH_FUNCTION: 1, FOLDED: 1, NO_COMMUNICATOR: 1}


def test_a_time_of_zero_has_no_bandwidth() -> None:
    (line,), _ = emitted(ops(allreduce(1, 10.0, ms=0)))
    assert line["coll_perf"]["coll_algobw_gbs"] == "nan"
    assert line["coll_perf"]["coll_busbw_gbs"] == "nan"


@pytest.mark.parametrize(
    ("op", "n_ranks", "factor"),
    [(Op.ALL_REDUCE, 2, 1.0), (Op.ALL_REDUCE, 4, 1.5), (Op.ALL_GATHER, 4, 0.75),
     (Op.ALL_TO_ALL, 8, 0.875), (Op.BROADCAST, 8, 1.0), (Op.SEND, 2, 1.0), (Op.ALL_REDUCE, 0, 1.0)],
)  # fmt: skip
def test_bus_factors(op: Op, n_ranks: int, factor: float) -> None:
    assert bus_factor(op, n_ranks) == factor
