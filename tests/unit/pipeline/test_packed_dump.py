"""A dump that was packed and unpacked is the same dump; dumps share what they have in common."""

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.format.flight_recorder import entry_layouts, parse_flight_recorder
from comminsight.pipeline import reading_pool
from comminsight.pipeline.flight_recorder_file import plain_dump
from comminsight.pipeline.flight_recorder_files import DUMP_WORKERS, read_dumps
from comminsight.pipeline.packed_dump import Unpacking, packed
from tests.builders.flight_recorder import parallel_job, torch_pickle


def write(folder: Path) -> list[Path]:
    """The dumps of eight ranks, one of which stopped."""
    job = parallel_job(2, 2, 2, n_steps=3, n_microbatches=2)
    job.host_stops[5] = len(job.programs[5]) - 4
    job.play()
    paths = [folder / f"dump_rank_{rank}" for rank in job.programs]
    for rank, path in enumerate(paths):
        path.write_bytes(torch_pickle(job.dump(rank, ring=50)))
    return paths


def test_the_same_comes_out(tmp_path: Path) -> None:
    unpacking = Unpacking()
    dumps = [parse_flight_recorder(path.read_bytes()) for path in write(tmp_path)]
    found = [unpacking.dump(packed(dump)) for dump in dumps]
    assert found == dumps
    assert {len(dump.entries) for dump in found} != {0}
    (first, *_), (other, *_) = found[0].groups, found[1].groups
    assert first is other


def test_an_empty_dump(tmp_path: Path) -> None:
    empty = parse_flight_recorder(b'{"version": "2.4", "entries": []}')
    assert Unpacking().dump(packed(empty)) == empty


def test_workers_give_back_exactly_what_is_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path)
    paths[3].write_bytes(paths[3].read_bytes()[:-9])
    (tmp_path / "notes.txt").write_text("no dump")
    alone = read_dumps([tmp_path])
    monkeypatch.setattr(reading_pool, "MIN_BYTES", 1)
    monkeypatch.setattr(reading_pool, "BYTES_PER_SHARE", 1)
    monkeypatch.setattr(reading_pool, "HEAD_START_RATIO", 0)
    monkeypatch.setattr(reading_pool, "_n_cores", lambda: 4)
    assert read_dumps([tmp_path]) == alone
    assert [len(alone.dumps), alone.others] == [7, ["notes.txt"]]
    shares = reading_pool.shared_out(paths)
    answers = [DUMP_WORKERS.found(DUMP_WORKERS.answer(share)) for share in shares]
    assert [len(list(answer)) for answer in answers] == [
        sum(path != paths[3] for path in share) for share in shares
    ]


def test_what_is_no_dump_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no dump")
    with pytest.raises(InputError, match=r"notes\.txt: is no dump"):
        plain_dump(path, entry_layouts())
