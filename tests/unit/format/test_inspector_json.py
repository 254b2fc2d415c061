"""NCCL Inspector's lines of all versions: what is read, what is counted, and that speed changes
nothing."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.errors import InputError
from comminsight.format import inspector_json
from comminsight.format.inspector import InspectorLines
from comminsight.format.inspector_batch import by_process, common_ranks, timed_ops
from comminsight.format.inspector_json import InspectorRecords, is_inspector, read_inspector
from comminsight.model.ops import Algorithm, Op, Protocol, TimingSource
from tests.builders import MS, allreduce, comm_row, comm_rows, identity, ops, send


def line(
    sn: int = 0, *, kind: str = "coll", name: str = "AllReduce", size: object = 1 << 20,
    exec_us: object = 500, header: object = None, version: str = "v4.0", pid: int = 7,
    rank: int = 0, dump_us: int = 1_748_030_377_748_202, **more: object,
) -> dict[str, Any]:  # fmt: skip
    perf: dict[str, Any] = {kind: name, f"{kind}_sn": sn}
    if kind == "p2p":
        perf["p2p_peer"] = 3
    perf |= {
        f"{kind}_msg_size_bytes": size, f"{kind}_exec_time_us": exec_us,
        f"{kind}_timing_source": "kernel_gpu", f"{kind}_algobw_gbs": 2.5, f"{kind}_busbw_gbs": 4.4,
    }  # fmt: skip
    head = {"id": "0xabc", "comm_name": "DP", "rank": rank, "n_ranks": 8, "nnodes": 2}
    return {
        "header": head if header is None else header,
        "metadata": {
            "inspector_output_format_version": version, "git_rev": "9019a19", "rec_mechanism":
            "nccl_profiler_interface", "dump_timestamp_us": dump_us, "hostname": "n1", "pid": pid,
        },
        f"{kind}_perf": perf | more,
    }  # fmt: skip


def text_of(*lines: dict[str, Any] | bytes) -> bytes:
    texts = [
        one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode()
        for one in lines
    ]
    return b"\n".join(texts) + b"\n"


def read(*lines: dict[str, Any] | bytes, block_bytes: int = 1 << 20) -> InspectorRecords:
    return read_inspector(io.BytesIO(text_of(*lines)), path="x.log", block_bytes=block_bytes)


def test_a_collective_and_a_send() -> None:
    found = read(line(41), line(2, kind="p2p", name="Send", size=8192))
    assert found.counts == Counter()
    assert found.rows["op"].tolist() == [Op.ALL_REDUCE, Op.SEND]
    assert found.rows["sn"].tolist() == [41, 2]
    assert found.rows["size_bytes"].tolist() == [1 << 20, 8192]
    assert found.rows["exec_us"].tolist() == [500, 500]
    assert found.rows["peer"].tolist() == [-1, 3]
    assert found.rows["source"].tolist() == [TimingSource.GPU] * 2
    (context,) = found.contexts
    assert (context.id, context.rank, context.n_ranks, context.nnodes) == ("0xabc", 0, 8, 2)
    assert (context.hostname, context.pid, context.version) == ("n1", 7, "v4.0")


def test_algorithm_and_protocol_of_v4_2() -> None:
    found = read(*(line(n, version="v4.2", coll_algo="RING", coll_proto="LL") for n in range(3)))
    assert found.rows["algo"].tolist() == [Algorithm.RING] * 3
    assert found.rows["proto"].tolist() == [Protocol.LL] * 3


@pytest.mark.parametrize("version", ["v4.3", "v4.4"])
def test_records_of_a_stream_belong_to_the_marker_before_them(version: str) -> None:
    whole = line(0, version=version)
    marker = {key: whole[key] for key in ("header", "metadata")} | {
        "dump_stats": {
            "coll_records": 2, "p2p_records": 0, "proxy_records": 1,
            "coll_dropped_total": 9, "coll_dropped_since_last_dump": 4,
        }
    }  # fmt: skip
    payload = [{"coll_perf": line(n)["coll_perf"]} for n in range(3)]
    found = read(payload[2], marker, payload[0], {"proxy_trace": {"x": 1}}, payload[1], payload[2])
    assert found.rows["sn"].tolist() == [0, 1]
    assert found.contexts[0].version == version
    assert found.counts == {
        "inspector.no_header": 2, "inspector.dropped": 4, "inspector.proxy_record": 1
    }  # fmt: skip


def test_a_verbose_op_lasts_from_its_first_channel_to_its_last() -> None:
    """The plugin's own time is that of its longest channel: 2 us, where the op took 99."""
    channels = [
        {"channel_id": n, "kernel_start_ts": at, "kernel_stop_ts": at + length}
        for n, (at, length) in enumerate([(1000, 2), (1000, 2), (1000, 2), (1098, 1)])
    ]
    stamps = {"coll_start_ts": 990, "coll_stop_ts": 1100, "kernel_events": channels}
    found = read(line(0, exec_us=2, event_trace_ts=stamps))
    (row,) = found.rows
    assert (row["exec_us"], row["channels_us"]) == (2, 99)
    assert (row["start_us"], row["stop_us"]) == (990, 1100)


@pytest.mark.parametrize(
    ("odd", "code", "n_rows"),
    [
        (line(1, size=18446744073709547520), "inspector.absurd_size", 1),
        (line(1, size=10**30), "inspector.absurd_size", 1),
        (line(1, coll_busbw_gbs="nan", coll_algobw_gbs="nan"), "inspector.nan", 1),
        (line(1, name="AllGatherV"), "inspector.unknown_op", 1),
        (line(1, coll_sn="x"), "inspector.no_serial", 1),
        (b'{"header":{"id":"0xabc","rank":0', "inspector.bad_line", 0),
        (b"[1,2]", "inspector.bad_line", 0),
        (line(1, header={}), "inspector.no_header", 0),
        ({"something": "else"}, "inspector.other_line", 0),
    ],
)
def test_what_is_odd_is_counted_by_name_and_the_rest_is_read(
    odd: dict[str, Any] | bytes, code: str, n_rows: int
) -> None:
    found = read(line(0), odd, line(2))
    assert len(found.rows) == 2 + n_rows
    assert found.counts == {code: 1}
    assert found.rows["size_bytes"].max() == 1 << 20


def test_a_torn_last_line_costs_itself() -> None:
    stream = io.BytesIO(text_of(line(0), line(1))[:-40])
    found = read_inspector(stream)
    assert found.rows["sn"].tolist() == [0]
    assert found.counts == {"inspector.torn_line": 1}


def test_a_compressed_file_and_one_that_is_cut() -> None:
    packed = gzip.compress(text_of(*(line(n) for n in range(100))))
    assert len(read_inspector(io.BytesIO(packed)).rows) == 100
    cut = read_inspector(io.BytesIO(packed[:-30]))
    assert cut.rows["sn"].tolist() == list(range(len(cut.rows)))
    assert 0 < len(cut.rows) < 100
    assert cut.counts == {"inspector.torn_line": 1}


@pytest.mark.parametrize("text", [b"", b"{}\n", b"NCCL INFO\n", b'{"coll_perf":{"coll_sn":1}}\n'])
def test_a_wrong_file_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.log: none of its .* lines has a header"):
        read_inspector(io.BytesIO(text), path="x.log")


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (text_of(line(0)), True),
        (text_of(line(0, kind="p2p", name="Send")), True),
        (b'{"traceEvents": [{"coll_perf": 1}]}', False),
        (b'[{"ph": "X"}]', False),
        (b"host:1:2 [0] NCCL INFO", False),
    ],
)
def test_it_is_known_by_its_first_line(head: bytes, is_one: bool) -> None:
    assert is_inspector(head) is is_one


VALUES = st.one_of(
    st.integers(-5, 1 << 70), st.sampled_from(["nan", "x", 1.5, None, True, [], {}, 0, 7])
)
LINES = st.builds(
    line,
    st.integers(0, 1 << 34),
    kind=st.sampled_from(["coll", "p2p"]),
    name=st.sampled_from(
        ["AllReduce", "AllGather", "Reduce", "ReduceScatter", "Send", "Recv", "X"]
    ),
    size=st.one_of(st.integers(0, 1 << 52), VALUES),
    exec_us=st.one_of(st.integers(0, 1 << 40), VALUES),
    rank=st.integers(0, 3),
    pid=st.sampled_from([7, 8, 1234567]),
    dump_us=st.one_of(st.just(1_748_030_377_748_202), st.integers(0, 1 << 61)),
    version=st.sampled_from(["v4.0", "v4.1"]),
)


def resolved(found: InspectorRecords) -> list[tuple[object, ...]]:
    return [(found.contexts[row[0]], *row[1:]) for row in found.rows.tolist()]


def assert_columns_are_exact(*lines: dict[str, Any] | bytes, block_bytes: int = 1 << 20) -> None:
    def outcome() -> tuple[object, ...]:
        try:
            found = read(*lines, block_bytes=block_bytes)
        except InputError as error:
            return (str(error),)
        return resolved(found), found.counts, found.n_lines

    fast = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspector_json, "block_columns", lambda *_: None)
        assert fast == outcome()


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=12), block=st.sampled_from([1, 600, 1 << 20]))
def test_law_columns_say_what_reading_line_by_line_says(
    lines: list[dict[str, Any]], block: int
) -> None:
    assert_columns_are_exact(*lines, block_bytes=block)


SHORT_HEAD = {"id": "0xabc", "rank": 0, "n_ranks": 8}


@pytest.mark.parametrize("kind", ["coll", "p2p"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        # keys of the same length and the same last eight bytes
        ('"KIND_msg_size_bytes":', '"KIND_xsg_size_bytes":'),
        ('"KIND_msg_size_bytes":', '"kinx_msg_size_bytes":'),
        ('"KIND_exec_time_us":', '"KIND_queue_time_us":'),
        ('"KIND_exec_time_us":', '"xxxx_exec_time_us":'),
        ('"KIND_timing_source":', '"KIND_ximing_source":'),
        ('"KIND_busbw_gbs":', '"KIND_algobw_gbs":'),
        # a second value for a key that was read, behind it
        ('"KIND_busbw_gbs":4.4', '"KIND_sn":99'),
        ('"KIND_busbw_gbs":4.4', '"KIND_busbw_gbs":4.4,"KIND_msg_size_bytes":99'),
        ('"KIND_algobw_gbs":2.5', '"KIND_algobw_gbs":2,"KIND_sn":7,"x":5'),
        ('"KIND_busbw_gbs":4.4}', '"KIND_busbw_gbs":4.4},"header":{"id":"0xd","rank":1}'),
        ('"KIND_busbw_gbs":4.4', '"KIND_busbw_gbs":4.4,"event_trace_ts":{"KIND_start_ts":5}'),
        # another time of a dump than that of the metadata
        ('"nnodes":2', '"dump_timestamp_us":1111111111111111,"nnodes":2'),
        ('"dump_timestamp_us":', '"dump_timestamp_us":1111111111111111,"dump_timestamp_us":'),
        # a payload that is not at the top, and two of them
        ('"metadata":', '"x":{"KIND_perf":{"KIND_sn":3}},"metadata":'),
        ('"metadata":', '"coll_perf":{"coll":"Reduce"},"metadata":'),
        ('"pid":7},', '"pid":7,"x":{'),
        # values that are no JSON, or no number
        (":4.4}", ":4..4}"), (":4.4}", ":04.4}"), (":4.4}", ":4.}"), (":2.5,", ":2.5},"),
        (":2.5,", ':"nan",'), (":2.5,", ":[2,5],"), (":2.5,", ":2.5e-07,"), (":2.5,", ":-2.5,"),
        (":2.5,", ":12345678,"), (":2.5,", ":0.123456789012345678,"), (":500,", ":0500,"),
        ("1748030377748202", "0748030377748202"), ("1748030377748202", "17480303777482021"),
        ("1748030377748202", "174803037774820"), ("1748030377748202", "1748030377748202.0"),
        ('"kernel_gpu"', '"collective_cpu"'), ('"kernel_gpu"', '"kernel_gpu",'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_that_only_looks_like_its_neighbours_is_read_as_what_it_is(
    kind: str, old: str, new: str, place: int
) -> None:
    name = "Send" if kind == "p2p" else "AllReduce"
    lines = [text_of(line(n, kind=kind, name=name)).rstrip() for n in range(4)]
    old, new = old.replace("KIND", kind), new.replace("KIND", kind)
    other = lines[place].decode().replace(old, new).encode()
    assert other != lines[place]
    assert_columns_are_exact(*lines[:place], other, *lines[place + 1 :])


@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
def test_many_communicators_in_turn_are_read_by_columns(block_bytes: int) -> None:
    heads: list[dict[str, Any]] = [
        SHORT_HEAD | {"comm_name": "x" * (n % 9), "rank": n} for n in range(40)
    ]
    lines = [line(n, header=heads[n * 7 % 40], dump_us=10**15 + n // 3) for n in range(200)]
    assert_columns_are_exact(*lines, block_bytes=block_bytes)


def test_lines_of_words_for_bandwidths_are_read_by_columns() -> None:
    lines = [
        line(n) if n % 3 == 0 else line(n, coll_algobw_gbs="nan", coll_busbw_gbs="nan")
        for n in range(20)
    ]
    assert_columns_are_exact(*lines)
    assert_columns_are_exact(*lines[1:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspector_json._Reading, "_row", None)  # is not called
        assert read(*lines).counts == {"inspector.nan": 13}


@settings(max_examples=400, deadline=None)
@given(
    at=st.integers(0, 2500), byte=st.integers(0, 255), kind=st.sampled_from(["coll", "p2p"]),
    n=st.integers(1, 6),
)  # fmt: skip
def test_law_columns_are_exact_whatever_byte_is_damaged(
    at: int, byte: int, kind: str, n: int
) -> None:
    name = "Recv" if kind == "p2p" else "AllGather"
    text = bytearray(text_of(*(line(sn, kind=kind, name=name) for sn in range(n)))[:-1])
    text[at % len(text)] = byte
    assert_columns_are_exact(bytes(text))


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 2500), byte=st.sampled_from(list(b'"{}[]:,0x9\n\\')), n=st.integers(2, 6))
def test_law_a_damaged_byte_never_changes_other_lines(at: int, byte: int, n: int) -> None:
    text = bytearray(text_of(*(line(sn) for sn in range(n))))
    at = min(at, len(text) - 2)
    damaged = text[:at].count(b"\n")
    text[at] = byte
    try:
        found = read_inspector(io.BytesIO(bytes(text)))
    except InputError:
        assert n <= 2
        return
    others = {*range(n)} - {damaged, damaged + 1}
    assert others <= {*found.rows["sn"].tolist()}


def test_several_processes_in_one_file_are_told_apart() -> None:
    found = read(*(line(n, pid=7 + n % 2, rank=n % 2) for n in range(6)))
    processes = by_process(found.rows, found.contexts)
    assert [(one.pid, one.rows["sn"].tolist()) for one in processes] == [
        (7, [0, 2, 4]),
        (8, [1, 3, 5]),
    ]
    assert common_ranks(processes) == ({("n1", 7): 0, ("n1", 8): 1}, 8)


@pytest.mark.parametrize(
    "others",
    [
        [line(0, pid=8, rank=0)],  # the same rank twice
        [line(0, pid=8, rank=1, header={"id": "0xdef", "rank": 1, "n_ranks": 8})],
        [],  # one process alone: its largest communicator may be any
    ],
)
def test_ranks_are_not_guessed(others: list[dict[str, Any]]) -> None:
    found = read(line(0, pid=7, rank=0), *others)
    assert common_ranks(by_process(found.rows, found.contexts)) == ({}, 0)


def test_lines_without_times_give_no_ops() -> None:
    found = read(*(line(n) for n in range(3)))
    (process,) = by_process(found.rows, found.contexts)
    records, _ = timed_ops(process, 0)
    assert len(records) == 0


def test_our_own_lines_come_back_as_the_ops_that_they_were() -> None:
    comms = comm_rows(
        comm_row(1, "0-7", me=2, comm_hash=0xABC), comm_row(2, "2,6", me=2, comm_hash=0xDEF)
    )
    records = ops(
        allreduce(1, 10.0, ms=2, size=1 << 20),
        allreduce(1, 20.0, ms=3, size=4096),
        send(1, 30.0, comm=2),
    )
    text = b"\n".join(InspectorLines(identity(2, host="node7"), comms, records)) + b"\n"
    found = read_inspector(io.BytesIO(text))
    (process,) = by_process(found.rows, found.contexts)
    back, rows = timed_ops(process, 2)
    assert back["op"].tolist() == records["op"].tolist()
    assert back["size_bytes"].tolist() == records["size_bytes"].tolist()
    assert (back["end_ns"] - back["start_ns"]).tolist() == (
        records["end_ns"] - records["start_ns"]
    ).tolist()
    assert np.diff(back["start_ns"]).tolist() == [10 * MS, 10 * MS]
    assert back["match_seq"].tolist() == [1, 2, 1]
    assert rows["comm_hash"][0] == 0xABC
    assert rows["comm_hash"][1] != 0xDEF  # messages are counted on each rank by itself
