"""Archived records in arrival order, whatever the row groups, and who wrote them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comminsight.errors import InputError
from comminsight.model.event import OP_DTYPE
from comminsight.store import events, replay
from comminsight.store.archive import Archive
from comminsight.store.events import SessionEvents, block_name, export_all
from comminsight.store.replay import FIELDS, EventsFile, session_batches
from comminsight.store.sessions import (
    comm_rows_of,
    export_sessions,
    read_sessions,
    session_entry,
)
from tests.builders import comm_row, comm_rows, identity
from tests.builders.records import record


def records(n: int, seed: int, *, disorder: int) -> np.ndarray:
    """Ops whose starts are out of order by up to ``disorder`` places, some numbers missing."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(record(kind=1, op=1, state=3, comm_index=1, dtype=9), n)
    rows["start_ns"] = 1_000 + 10 * (np.arange(n) + rng.integers(0, disorder + 1, n))
    rows["end_ns"] = rows["start_ns"] + 5
    rows["size_bytes"] = rng.integers(1, 1 << 40, n)
    rows["seq"] = np.cumsum(rng.integers(1, 3, n))
    rows["seq_low"] = rows["seq"]
    return rows


@pytest.mark.parametrize("group_rows", [1, 7, 64, 10_000])
@pytest.mark.parametrize("batch_rows", [3, 16_384])
@pytest.mark.parametrize("disorder", [0, 40, 500])
def test_every_session_comes_back_in_the_order_of_its_numbers(
    tmp_path: Path, group_rows: int, batch_rows: int, disorder: int
) -> None:
    sessions = {rank: records(150 + rank, rank, disorder=disorder) for rank in range(3)}
    archive = Archive.local(tmp_path)
    with patch.object(events, "ROW_GROUP_ROWS", group_rows):
        export_all(
            [SessionEvents(identity(r, pid=50 + r), rows, np.array([-1, 0], np.int32))
             for r, rows in sessions.items()],
            archive, "",
        )  # fmt: skip
    file = EventsFile(tmp_path / "events" / f"{block_name(0)}.parquet")
    with patch.object(replay, "_BATCH_ROWS", batch_rows):
        for rank, rows in sessions.items():
            parts = list(session_batches([file], identity(rank, pid=50 + rank).session_id))
            found = np.concatenate([np.zeros(0, OP_DTYPE), *parts])
            assert len(found) == len(rows)
            for name in FIELDS:
                assert (found[name] == rows[name]).all(), name
    assert list(session_batches([file], "nobody")) == []


EXTREMES = {
    "comm_index": (1 << 32) - 1, "op_seq": (1 << 32) - 2, "match_seq": 1 << 31, "func_seq": 7,
    "peer_or_root": -1, "enqueue_ns": -(1 << 63), "count": (1 << 63) - 1, "flags": 65535,
    "size_bytes": -5,
}  # fmt: skip


@pytest.mark.parametrize("varying", [(), ("flags",), ("comm_index", "op_seq"), tuple(EXTREMES)])
def test_columns_of_one_value_are_taken_from_the_statistics_as_they_are(
    tmp_path: Path, varying: tuple[str, ...]
) -> None:
    rows = records(300, 1, disorder=9)
    for name, value in EXTREMES.items():
        rows[name] = value
    for name in varying:
        rows[name][::2] = 3
    archive = Archive.local(tmp_path)
    export_all([SessionEvents(identity(0), rows, np.array([-1, 0], np.int32))], archive, "")
    file = EventsFile(tmp_path / "events" / f"{block_name(0)}.parquet")
    found = np.concatenate(list(session_batches([file], identity(0).session_id)))
    for name in FIELDS:
        assert (found[name] == rows[name]).all(), name


@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_file_of_columns_that_may_be_absent_is_read_like_any_other(
    tmp_path: Path, *, has_statistics: bool
) -> None:
    rows = records(300, 2, disorder=40)
    session = SessionEvents(identity(0), rows, np.array([-1, 0], np.int32))
    table = events.events_table(session).drop_columns(["func_seq", "n_folded"])
    path = tmp_path / "earlier.parquet"
    pq.write_table(table, path, write_statistics=has_statistics)
    found = np.concatenate(list(session_batches([EventsFile(path)], identity(0).session_id)))
    for name in set(FIELDS) - {"func_seq"}:
        assert (found[name] == rows[name]).all(), name
    assert not found["func_seq"].any()


def test_a_file_without_its_numbers_is_refused(tmp_path: Path) -> None:
    session = SessionEvents(identity(0), records(9, 2, disorder=0), np.array([-1], np.int32))
    path = tmp_path / "a.parquet"
    pq.write_table(events.events_table(session).drop_columns(["seq"]), path)
    with pytest.raises(InputError, match="lacks its columns session_id and seq"):
        EventsFile(path)


def test_files_of_another_kind_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    for name, says in (("a", "is no readable Parquet file"), ("b", "is not an export of events")):
        with pytest.raises(InputError, match=rf"{name}\.parquet: {says}"):
            EventsFile(tmp_path / f"{name}.parquet")


def test_sessions_come_back_as_they_were(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    rows = comm_rows(comm_row(1, "0-3", 0, desc=b"\xff no text"), comm_row(2, "0,2", 0))
    entries = [
        session_entry(identity(rank), rows, {"safe_window_ns": 5}, is_over=rank > 0)
        for rank in (0, 70)
    ]
    names = export_sessions(entries, archive, "")
    assert names == export_sessions(reversed(entries), archive, "")
    assert [name.split("/")[-1] for name in names] == [
        "ranks-000000-000063.json", "ranks-000064-000127.json",
    ]  # fmt: skip
    assert [read_sessions(archive, name) for name in names] == [(entry,) for entry in entries]
    assert (comm_rows_of(entries[0]) == rows).all()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "does not read"),
        (b'{"schema_version": 2, "sessions": []}', "has schema 2, newer"),
    ],
)
def test_sessions_of_another_form_are_refused(tmp_path: Path, data: bytes, says: str) -> None:
    archive = Archive.local(tmp_path)
    archive.put("sessions/x.json", data)
    with pytest.raises(InputError, match=says):
        read_sessions(archive, "sessions/x.json")
