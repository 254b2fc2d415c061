from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from comminsight.errors import InputError
from comminsight.format.segment import read_segment
from comminsight.model.ops import CommRole
from comminsight.model.topology import Communicator
from comminsight.store.archive import Archive
from comminsight.store.catalog import (
    Catalog,
    archive_segment,
    build_catalog,
    fetch_segment,
    read_catalog,
    run_prefix,
    segment_entry,
    write_catalog,
)
from tests.builders import (
    MS,
    allreduce,
    comm_row,
    comm_rows,
    drain,
    identity,
    ops,
    segment_bytes,
    write_segment,
)

PREFIX = run_prefix("job", "run-1")


def segment_file(folder: Path, rank: int, number: int, starts_ms: list[int]) -> Path:
    records = ops(*(allreduce(100 * number + i, ms) for i, ms in enumerate(starts_ms)))
    comms = comm_rows(comm_row(1, me=rank), comm_row(2, "0,1,2", name=b"unused"))
    data = segment_bytes(records, comms, identity(rank), number=number)
    return write_segment(folder / str(rank), data, number=number)


def test_an_entry_tells_what_the_segment_holds(tmp_path: Path) -> None:
    records = ops(allreduce(7, 40.0, 5), allreduce(8, 30.0, 2), drain(9, 90.0))
    path = write_segment(tmp_path, segment_bytes(records, comm_row(), identity(2), number=4))
    entry = segment_entry("n", read_segment(path))
    assert (entry.global_rank, entry.number, entry.n_records) == (2, 4, 3)
    assert (entry.first_seq, entry.last_seq) == (7, 9)
    assert (entry.first_start_ns, entry.last_start_ns) == (30 * MS, 40 * MS)
    assert entry.last_end_ns == 45 * MS
    assert entry.comm_hashes == (f"{int(comm_row()['comm_hash'][0]):016x}",)
    assert entry.is_sealed


def test_the_time_index_finds_the_segments_of_a_rank(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path / "archive")
    entries = [
        archive_segment(archive, PREFIX, segment_file(tmp_path, rank, number, starts))
        for rank, number, starts in [(0, 2, [50, 60]), (0, 1, [10, 20]), (1, 1, [10, 90])]
    ]
    catalog = build_catalog(entries)
    zero = entries[0].real_minus_mono_ns

    def found(rank: int, begin_ms: int, end_ms: int) -> list[int]:
        between = catalog.segments_of(rank, zero + begin_ms * MS, zero + end_ms * MS)
        return [entry.number for entry in between]

    assert found(0, 0, 100) == [1, 2]
    assert found(0, 20, 30) == [1]
    assert found(0, 30, 50) == []
    assert found(0, 30, 51) == [2]
    assert found(1, 50, 60) == [1]
    assert found(2, 0, 100) == []


def test_an_archived_segment_comes_back_bit_for_bit(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path / "archive")
    path = segment_file(tmp_path, 0, 1, [1, 2, 3])
    entry = archive_segment(archive, PREFIX, path)
    assert archive_segment(archive, PREFIX, path) == entry
    back = fetch_segment(archive, entry.name, tmp_path / "back")
    assert back.read_bytes() == path.read_bytes()
    assert back.parent.name == entry.session_id


def test_a_segment_is_never_replaced_by_another_of_its_name(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path / "archive")
    archive_segment(archive, PREFIX, segment_file(tmp_path / "a", 0, 1, [1, 2]))
    with pytest.raises(InputError, match="other content"):
        archive_segment(archive, PREFIX, segment_file(tmp_path / "b", 0, 1, [1, 2, 3]))


def test_members_are_ranges_and_the_catalog_comes_back(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    comm = Communicator(
        comm_id=0, comm_hash=0xABC, ordinal=1, name="dp", role=CommRole.DP, members=(0, 2, 4, -1)
    )
    catalog = build_catalog([], [comm])
    assert catalog.communicators[0].members == "0-4:2,-1"
    assert catalog.communicators[0].comm_size == 4
    write_catalog(archive, PREFIX, catalog)
    assert read_catalog(archive, PREFIX) == catalog


def test_order_of_the_input_does_not_matter(tmp_path: Path) -> None:
    entries = [
        segment_entry(str(n), read_segment(segment_file(tmp_path, rank, n, [n])))
        for rank, n in [(1, 2), (0, 3), (1, 1)]
    ]
    assert build_catalog(entries) == build_catalog(reversed(entries))


@pytest.mark.parametrize("text", [b"{", b'{"segments":3}', b'{"schema_version":99}'])
def test_a_catalog_that_does_not_read_is_an_input_error(tmp_path: Path, text: bytes) -> None:
    archive = Archive.local(tmp_path)
    archive.put(f"{PREFIX}/metadata/catalog.json", text)
    with pytest.raises(InputError):
        read_catalog(archive, PREFIX)


def test_an_empty_segment_is_found_nowhere(tmp_path: Path) -> None:
    path = write_segment(tmp_path, segment_bytes(ops()))
    entry = segment_entry("n", read_segment(path))
    assert entry.n_records == entry.last_seq == 0
    everything = (0, np.iinfo(np.int64).max)
    assert Catalog(segments=(entry,)).segments_of(0, *everything) == []
    assert msgspec.json.decode(msgspec.json.encode(entry), type=type(entry)) == entry
