from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comminsight.errors import InputError
from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import NoticeReason, WaitSide
from comminsight.store.archive import Archive
from comminsight.store.events import (
    EVENTS,
    NET,
    ROW_GROUP_ROWS,
    SessionEvents,
    export_all,
    export_events,
    parquet_bytes,
    read_events,
    read_manifest,
)
from tests.builders import (
    MS,
    Stream,
    allreduce,
    identity,
    net_summary,
    notice,
    open_marker,
    ops,
)

PREFIX = "jobs/j/runs/r"


def session(rank: int, records: np.ndarray, comm_ids: tuple[int, ...] = (-1, 5)) -> SessionEvents:
    return SessionEvents(identity(rank), records, np.array(comm_ids, np.int32))


def few(rank: int) -> np.ndarray:
    stream = Stream()
    stream.allreduce(30.0 + rank)
    stream.send(10.0 + rank, peer=1, comm=2)
    stream.barrier(20.0 + rank)
    return stream.batch()


def test_rows_are_sorted_by_rank_and_start_in_files_of_64_ranks(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    ranks = [65, 0, 63, 64, -1]
    entries = export_events((session(rank, few(rank)) for rank in ranks), archive, PREFIX)
    assert [entry.name.rsplit("/", 1)[1] for entry in entries] == [
        "ranks-unknown.parquet", "ranks-000000-000063.parquet", "ranks-000064-000127.parquet",
    ]  # fmt: skip
    assert [entry.ranks for entry in entries] == [(-1,), (0, 63), (64, 65)]
    assert (entries[1].first_start_ns, entries[1].last_start_ns) == (10 * MS, 93 * MS)
    assert read_manifest(archive, PREFIX) == entries
    table = read_events([archive.path_of(entry.name) for entry in entries[1:]])
    assert table["global_rank"].to_pylist() == [0] * 3 + [63] * 3 + [64] * 3 + [65] * 3
    assert table["op"].to_pylist()[:3] == ["SEND", "BARRIER", "ALL_REDUCE"]
    assert table["comm_id"].to_pylist()[:3] == [-1, 5, 5]


def test_every_value_survives(tmp_path: Path) -> None:
    rows = ops(allreduce(1, 1.0), open_marker(allreduce(0, 2.0, op_seq=2), 2))
    rows["user_tag"] = [-(2**62), 2**62]
    rows["comm_index"] = [1, 2**32 - 1]
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes([session(3, rows)]))
    table = read_events([path])
    for name in ("seq", "start_ns", "end_ns", "user_tag", "comm_index", "peer_or_root", "flags"):
        assert table[name].to_pylist() == rows[name].tolist(), name
    assert table["state"].to_pylist() == ["DONE", "OPEN"]
    wall = identity(3).created_real_ns - identity(3).created_mono_ns
    assert table["real_minus_mono_ns"].to_pylist() == [wall, wall]


def test_summaries_and_notices_have_tables_of_their_own(tmp_path: Path) -> None:
    op = allreduce(1, 1.0)
    sides = int(WaitSide.NETWORK) | int(WaitSide.ARRIVAL) << 8 | 7 << 16
    net = net_summary(op, 2, wait_side=sides, posted_bytes=2**40, arrival_wait_us=2**32 - 1)
    said = notice(3, 2.0, NoticeReason.OVERHEAD_GUARD, profiler_mask=66)
    archive = Archive.local(tmp_path)
    entries = export_all([session(0, ops(op, net, said)), session(70, few(70))], archive, "")
    assert [(entry.name.split("/")[0], entry.n_rows) for entry in entries] == [
        ("events", 1), ("events", 3), ("net", 1), ("net", 0), ("notices", 1), ("notices", 0),
    ]  # fmt: skip
    assert len(read_manifest(archive, "", NET)) == 2
    events, _, summaries, _, notices, _ = (read_events([archive.path_of(e.name)]) for e in entries)
    assert events["op"].to_pylist() == ["ALL_REDUCE"]
    (found,) = summaries.to_pylist()
    assert (found["comm_id"], found["op_seq"], found["op"]) == (5, 1, "ALL_REDUCE")
    assert (found["send_wait"], found["receive_wait"]) == ("NETWORK", "ARRIVAL")
    assert (found["posted_bytes"], found["arrival_wait_us"]) == (2**40, 2**32 - 1)
    assert notices["reason"].to_pylist() == ["OVERHEAD_GUARD"]
    assert notices["profiler_mask"].to_pylist() == [66]


def test_without_summaries_there_are_events_only(tmp_path: Path) -> None:
    export_all([session(0, few(0))], Archive.local(tmp_path), "")
    assert [folder.name for folder in tmp_path.iterdir()] == ["events"]


def test_row_groups_compression_encodings_and_version(tmp_path: Path) -> None:
    rows = np.repeat(allreduce(1, 1.0), 50_000)
    rows["seq"] = np.arange(1, 50_001)
    rows["start_ns"] = rows["seq"] * MS
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes([session(rank, rows) for rank in range(3)]))
    file = pq.ParquetFile(path)
    meta = file.metadata
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    assert sizes == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 150_000 - 2 * ROW_GROUP_ROWS]
    assert not any(field.nullable for field in file.schema_arrow)
    for i, name in enumerate(file.schema_arrow.names):
        column = meta.row_group(0).column(i)
        assert column.compression == "ZSTD"
        expected = "DELTA_BINARY_PACKED" if name in EVENTS.growing else "RLE_DICTIONARY"
        assert expected in column.encodings, name
    assert file.schema_arrow.metadata[b"comminsight.schema_version"] == b"1"
    assert path.stat().st_size / 150_000 < 8


def test_the_same_input_gives_the_same_bytes() -> None:
    sessions = [session(rank, few(rank)) for rank in (0, 1)]
    assert parquet_bytes(sessions) == parquet_bytes(sessions)


def test_files_of_other_schema_versions_unite_by_name(tmp_path: Path) -> None:
    new, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    new.write_bytes(parquet_bytes([session(0, few(0))]))
    older = pq.read_table(new).drop_columns(["stream_id", "algo"])
    older = older.append_column("gone_ns", pa.array([1, 2, 3]))
    pq.write_table(older.replace_schema_metadata({"comminsight.schema_version": "0"}), old)
    table = read_events([old, new], columns=["op", "algo", "stream_id", "gone_ns"])
    assert table["stream_id"].to_pylist() == [None] * 3 + [0] * 3
    assert table["algo"].to_pylist() == [None] * 3 + ["UNKNOWN"] * 3
    assert table["gone_ns"].to_pylist() == [1, 2, 3] + [None] * 3
    assert table.schema.field("stream_id").nullable
    table.validate(full=True)


def test_foreign_and_newer_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="no readable Parquet"):
        read_events([path])
    table = pa.table({"a": [1]})
    pq.write_table(table, path)
    with pytest.raises(InputError, match="not an export"):
        read_events([path])
    pq.write_table(table.replace_schema_metadata({"comminsight.schema_version": "99"}), path)
    with pytest.raises(InputError, match="newer") as caught:
        read_events([path])
    assert caught.value.next_step


def test_a_session_without_records_is_an_empty_file(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    (entry,) = export_events([session(0, np.zeros(0, OP_DTYPE))], archive, ".")
    assert entry.name == "events/ranks-000000-000063.parquet"
    assert entry.n_rows == 0
    assert read_events([archive.path_of(entry.name)]).num_rows == 0
    assert read_events([]).num_rows == 0


def test_duckdb_reads_the_files_by_name(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes([session(rank, few(rank)) for rank in (0, 1)]))
    table = duckdb.read_parquet(str(path), union_by_name=True)
    counts = table.aggregate("global_rank, count(*)").order("global_rank")
    assert counts.fetchall() == [(0, 3), (1, 3)]
