"""Tables of nccl-tests, ports and counters beside anything else that ``diagnose`` takes."""

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.evidence_files import sorted_files
from comminsight.pipeline.host_files import host_evidence
from tests.unit.format.test_ib_ports import IBSTAT
from tests.unit.format.test_nccl_tests import devices, row, table

SIZES = (1 << 20, 1 << 26, 1 << 30)


def pair_test(folder: Path, one: int, other: int, busbw_gbs: float) -> None:
    """all_reduce between two hosts of eight GPUs."""
    rows = [row(size, busbw_gbs * 8 / 15, 15 / 8) for size in SIZES]
    lines = devices(16)
    text = table(16, *rows, before="./all_reduce_perf -b 1M")
    hosts = {"node0": f"gpu{one:02}", "node1": f"gpu{other:02}"}
    assert all(line in text for line in lines)
    for name, host in hosts.items():
        text = text.replace(f" on {name} ", f" on {host} ")
    (folder / f"pair_{one}_{other}.txt").write_text(text)


@pytest.mark.parametrize("slow", [None, 0, 3])
def test_a_slow_host_in_tests_of_pairs(tmp_path: Path, slow: int | None) -> None:
    for one in range(5):
        for other in range(one + 1, 5):
            pair_test(tmp_path, one, other, 90.0 if slow in {one, other} else 180.0 + one)
    report = diagnose([tmp_path])
    first = report.verdicts[0]
    if slow is None:
        assert first.cause in {Cause.NO_VERDICT, Cause.HEALTHY}
        return
    assert (first.cause, first.culprits) == (Cause.SLOW_LINK, ())
    assert f"gpu{slow:02}" in {link.value for link in first.chain}


def run_files(folder: Path, busbw_gbs: float, **settings: str) -> Path:
    """A test of two hosts with the settings that NCCL told."""
    folder.mkdir()
    pair_test(folder, 0, 1, busbw_gbs)
    lines = [f"gpu00:7:7 [0] NCCL INFO {name} set by environment to {value}."
             for name, value in settings.items()]  # fmt: skip
    (folder / "nccl.log").write_text("\n".join(lines) + "\n")
    return folder


def test_what_differs_from_another_day(tmp_path: Path) -> None:
    before = run_files(tmp_path / "before", 180.0, NCCL_ALGO="Ring")
    now = run_files(tmp_path / "now", 60.0, NCCL_ALGO="Ring", NCCL_MAX_NCHANNELS="1")
    first = diagnose([now], baseline=[before]).verdicts[0]
    assert (first.cause, first.rule, first.culprits) == (Cause.SLOW_LINK, "slower_run", ())
    assert "NCCL_MAX_NCHANNELS" in str(first.evidence)


def test_the_same_bandwidth_as_another_day_is_no_finding(tmp_path: Path) -> None:
    before = run_files(tmp_path / "before", 180.0, NCCL_ALGO="Ring")
    now = run_files(tmp_path / "now", 176.0, NCCL_ALGO="Ring", NCCL_MAX_NCHANNELS="1")
    causes = {verdict.cause for verdict in diagnose([now], baseline=[before]).verdicts}
    assert causes <= {Cause.NO_VERDICT, Cause.HEALTHY}


def test_a_slow_port_without_a_map_of_links_accuses_nobody(tmp_path: Path) -> None:
    for node in range(5):
        rate = 100 if node == 2 else 400
        (tmp_path / f"gpu{node}.ibstat").write_text(IBSTAT.replace("Rate: 400", f"Rate: {rate}"))
    report = diagnose([tmp_path])
    assert [verdict.cause for verdict in report.verdicts] == [Cause.NO_VERDICT]
    told = {entry.message.code: entry.message.params for entry in report.verdicts[0].evidence}
    assert any("gpu2" in str(params) for params in told.values())


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "ports").write_text(IBSTAT)
    (tmp_path / "test.txt").write_text(table(16, row(1 << 26, 50.0, 15 / 16, kind="float none -1")))
    (tmp_path / "c.csv").write_text("time_ns,host,device,counter,value\n1,n,d,c,1\nbad\n")
    (tmp_path / "d.csv").write_text("time_ns,host,device,counter,value\n")
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert {one.code for one in found.missing} == {
        "missing.counter_lines", "missing.host_of_ports", "missing.test_op",
    }  # fmt: skip
    assert [Path(one.file).name for one in found.unread] == ["d.csv"]


def test_one_file_that_does_not_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("time_ns,host,device,counter,value\n")
    with pytest.raises(InputError, match=r"d\.csv: holds no sample"):
        diagnose([path])


def test_a_log_that_shows_a_table_is_still_a_log(tmp_path: Path) -> None:
    lines = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    (tmp_path / "job.log").write_text(f"start\n# host n7\n{IBSTAT}{lines}\n")
    found = sorted_files([tmp_path])
    assert (len(found.logs), len(found.hosts)) == (1, 1)
