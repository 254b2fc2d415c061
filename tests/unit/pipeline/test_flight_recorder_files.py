"""Which dump is of which rank, by its file's name and by what is in it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from comminsight.diagnosis import codes
from comminsight.errors import InputError
from comminsight.pipeline.flight_recorder import diagnose_flight_recorder
from comminsight.pipeline.flight_recorder_files import numbers_in, rank_by_name, read_dumps
from tests.builders.flight_recorder import (
    T0,
    Call,
    FlightJob,
    Group,
    parallel_job,
    torch_pickle,
    write_dumps,
)


@pytest.fixture
def job() -> FlightJob:
    return parallel_job(2, 2, 1).play()


@pytest.mark.parametrize(
    "name",
    [
        "nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "_dump_{}", "dump{}", "rank_{}.pickle",
        "rank{}-of-4.bin", "host17_rank{}_20250923.pkl", "9_rank={}", "trace.{}",
    ],
)  # fmt: skip
def test_any_naming_that_holds_the_rank(name: str, job: FlightJob, tmp_path: Path) -> None:
    paths = write_dumps(tmp_path, job, name=name)
    dumps, others, _ = read_dumps(paths)
    assert [(one.global_rank, Path(one.source)) for one in dumps] == list(enumerate(paths))
    assert others == []


def test_the_word_rank_goes_before_other_numbers() -> None:
    assert numbers_in("job12_rank_3.7.json") == [3, 7, 3, 12]


def test_a_name_without_the_rank_is_made_up_for_by_what_the_groups_have_in_common(
    job: FlightJob, tmp_path: Path
) -> None:
    for rank, name in enumerate(["a", "b", "c", "d"]):
        (tmp_path / name).write_bytes(torch_pickle(job.dump(rank)))
    assert [one.global_rank for one in read_dumps([tmp_path])[0]] == [0, 1, 2, 3]


def test_a_number_that_contradicts_the_groups_is_not_the_rank(
    job: FlightJob, tmp_path: Path
) -> None:
    (path,) = write_dumps(tmp_path, job, ranks=[2], name="rank_{}")
    moved = path.rename(tmp_path / "rank_77")
    (one,), *_ = read_dumps([moved])
    assert one.global_rank == 2


def test_a_rank_that_nothing_tells_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    groups = {"0": Group("default_pg", (0, 1))}
    job = FlightJob(groups, {r: [Call("0", "all_reduce")] for r in (0, 1)}).play()
    path = tmp_path / "dump"
    path.write_bytes(torch_pickle(job.dump(0)))
    with pytest.raises(InputError, match="its groups leave open which rank") as caught:
        read_dumps([path])
    assert "dump_rank_3" in caught.value.next_step


def test_two_forms_of_one_dump_are_one(tmp_path: Path) -> None:
    """That with the frames of the calls in flight is taken."""
    job = parallel_job(2, 2, 1, host_stops={3: 20}).play()
    write_dumps(tmp_path, job, name="rank_{}.json", is_json=True)
    (with_frames, *_) = write_dumps(tmp_path, job, ranks=[0], name="rank_{}")
    dumps, *_ = read_dumps([tmp_path])
    assert len(dumps) == 4
    assert dumps[0].source == str(with_frames)


def test_two_dumps_of_a_rank_and_moment_that_differ_tell_nothing_of_it(
    job: FlightJob, tmp_path: Path
) -> None:
    write_dumps(tmp_path, job, name="rank_{}")
    other = job.dump(1)
    other["entries"] = other["entries"][:-1]
    (tmp_path / "rank_01").write_bytes(torch_pickle(other))
    dumps, _, unread = read_dumps([tmp_path])
    assert [one.global_rank for one in dumps] == [0, 2, 3]
    assert sorted(Path(one.file).name for one in unread) == ["rank_01", "rank_1"]
    assert {(one.rank, one.reason.code) for one in unread} == {(1, "unread.disagrees")}
    with pytest.raises(InputError, match=r"rank_0?1: another dump of its rank and moment differs"):
        read_dumps([tmp_path / "rank_1", tmp_path / "rank_01"])


@pytest.mark.parametrize("is_whole", [True, False])
def test_of_several_moments_the_last_whole_one_is_taken(
    job: FlightJob, tmp_path: Path, is_whole: bool
) -> None:
    """Whole: of all ranks. Of one rank alone, a later dump does not stand for the job."""
    write_dumps(tmp_path, job, name="first_rank_{}", ring=3)
    for rank in range(4) if is_whole else [1]:
        later = job.dump(rank)
        for entry in later["entries"]:
            entry["time_created_ns"] += 1000
        (tmp_path / f"second_rank_{rank}").write_bytes(torch_pickle(later))
    dumps, _, unread = read_dumps([tmp_path])
    taken = {Path(one.source).name.split("_")[0] for one in dumps}
    assert (len(dumps), taken) == (4, {"second" if is_whole else "first"})
    assert len(unread) == (4 if is_whole else 1)
    assert {one.reason.code for one in unread} == {"unread.other_moment"}


def test_what_is_no_dump_is_passed_over_in_a_folder_and_refused_by_name(
    job: FlightJob, tmp_path: Path
) -> None:
    write_dumps(tmp_path, job)
    (tmp_path / "README.md").write_text("# what was done")
    (tmp_path / "groups.json").write_text('{"0": {"ranks": [0, 1]}}')
    (tmp_path / ".hidden").write_bytes(b"\x80\x02N.")
    (tmp_path / "folder").mkdir()
    dumps, others, _ = read_dumps([tmp_path])
    assert (len(dumps), others) == (4, ["README.md", "groups.json"])
    for name in ("README.md", "nothing", "folder"):
        with pytest.raises(InputError, match=name):
            read_dumps([tmp_path / name])


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank_0")
    with pytest.raises(InputError, match="is no file"):
        diagnose_flight_recorder([tmp_path / "rank_0"])


def test_the_time_of_a_file_that_is_older_than_its_stamps_says_nothing(
    job: FlightJob, tmp_path: Path
) -> None:
    paths = write_dumps(tmp_path, job)
    for path, written_ns in zip(paths, (T0 - 1, T0 + 60_000_000_000), strict=False):
        os.utime(path, ns=(written_ns, written_ns))
    assert [one.written_ns for one in read_dumps(paths)[0]][:2] == [0, T0 + 60_000_000_000]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_compressed_dump_reads_as_it_was(
    pack: Callable[[bytes], bytes], job: FlightJob, tmp_path: Path
) -> None:
    plain = write_dumps(tmp_path, job)
    wanted = read_dumps([tmp_path]).dumps
    for path in plain:
        path.with_suffix(".gz").write_bytes(pack(path.read_bytes()))
        path.unlink()
    assert [one.dump for one in read_dumps([tmp_path]).dumps] == [one.dump for one in wanted]


@pytest.mark.parametrize("spoil", [
    lambda data: data[: len(data) // 2],
    lambda data: data.replace(b"entries", b"entrees").replace(b"K\x01", b"cos"),
    lambda data: gzip.compress(data)[:-200],
    lambda data: gzip.compress(data + b"\0" * (1 << 27)),
    lambda data: b"",
])  # fmt: skip
def test_a_bad_dump_is_told_and_its_rank_is_unknown(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    job = parallel_job(2, 2, 1)
    job.host_stops[1] = 20
    paths = write_dumps(tmp_path, job.play())
    paths[1].write_bytes(spoil(paths[1].read_bytes()))
    report = diagnose_flight_recorder(paths)
    assert 1 not in report.sources
    assert report.verdict.culprits == ()
    assert report.verdict.coverage.ranks_missing == (1,)
    (told,) = [one for one in report.verdict.missing if one.code == codes.MISSING_FILE]
    assert told.params["source"] == str(paths[1])


def test_a_bad_dump_of_the_last_rank_of_gloo_is_a_rank_that_nobody_knows(tmp_path: Path) -> None:
    groups = {"0": Group("default_pg", (0, 1, 2, 3))}
    job = FlightJob(groups, {r: [Call("0", "all_reduce")] * 6 for r in range(4)}, backend="gloo")
    job.host_stops |= {2: 3}
    paths = write_dumps(tmp_path, job.play())
    assert diagnose_flight_recorder(paths).verdict.culprits == (2,)
    paths[3].write_bytes(b"\x80\x02")
    report = diagnose_flight_recorder(paths)
    assert report.verdict.culprits == ()
    assert report.verdict.coverage.ranks_missing == (3,)


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank_3", 3), ("_dump_3", 3), ("a_dump_3", -1), ("dump", -1), ("rank_9999999", -1),
     ("job12_dump_3", -1)],
)  # fmt: skip
def test_the_rank_of_a_bad_dump_is_told_by_how_the_others_are_named(name: str, rank: int) -> None:
    assert rank_by_name(name, ["_dump_0", "job12_dump_1"]) == rank
