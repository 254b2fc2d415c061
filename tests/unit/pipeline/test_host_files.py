"""Tables of nccl-tests, ports and counters beside anything else that ``diagnose`` takes."""

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.evidence_files import sorted_files
from comminsight.pipeline.host_files import host_evidence
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.nccl_job import NcclJob
from tests.unit.format.test_ib_ports import IBSTAT
from tests.unit.format.test_lspci import bridge, device
from tests.unit.format.test_nccl_tests import devices, row, table
from tests.unit.format.test_nccl_tests_json import part
from tests.unit.format.test_nccl_tests_json import report as json_report
from tests.unit.format.test_nccl_tests_json import result as json_result
from tests.unit.format.test_net_interfaces import ETHTOOL as SETTINGS
from tests.unit.format.test_port_counters import ETHTOOL as NIC_STATISTICS
from tests.unit.format.test_port_counters import PERFQUERY, RDMA

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


def lids(folder: Path, **lid_of: int) -> None:
    """ibstat of each host, with the LID of its port."""
    for host, lid in lid_of.items():
        text = IBSTAT.replace("\t\tRate: 400\n", f"\t\tRate: 400\n\t\tBase lid: {lid}\n")
        (folder / f"{host}.ibstat").write_text(text)


def test_counters_of_several_moments_and_files(tmp_path: Path) -> None:
    """Three answers for two ports, from a third host; LIDs tell which ports these are."""
    lids(tmp_path, a=7, b=8)
    for k, stamp in enumerate(("2026-05-04T06:00:00Z", "2026-05-04T06:00:10Z")):
        texts = (PERFQUERY.format(lid=lid, n=n * k) for lid, n in ((7, 0), (8, 5)))
        (tmp_path / f"{k}.txt").write_text(f"# host head\n# time {stamp}\n" + "".join(texts))
    (tmp_path / "c.txt").write_text("# host head\n" + PERFQUERY.format(lid=99, n=1))
    found = host_evidence(sorted_files([tmp_path]).hosts)
    series = {(one.host, one.counter): one for one in found.counters}
    device = series["b", "symbol_error"].device
    assert series["b", "symbol_error"].values == (0.0, 5.0)
    assert series["a", "symbol_error"].values == (0.0, 0.0)
    (gap,) = {one.times_ns[1] - one.times_ns[0] for one in found.counters}
    assert gap == 10 * 10**9
    assert device in {port.device for port in found.facts.ports}
    assert [(one.code, one.params["n"]) for one in found.missing] == [
        ("missing.port_of_counters", 1)
    ]


def test_counters_of_an_interface_are_those_of_the_device_above(tmp_path: Path) -> None:
    (tmp_path / "n1.links").write_text("mlx5_4 port 1 ==> ens1f0 (Up)\n")
    settings = SETTINGS.format(name="ens1f0", speed="100000Mb/s", link="yes")
    (tmp_path / "n1.ethtool").write_text(settings + NIC_STATISTICS.format(n=8))
    (tmp_path / "n1.rdma").write_text(RDMA.format(card=4, n=3))
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert {(one.host, one.device) for one in found.counters} == {("n1", "mlx5_4")}
    assert {"rx_discards_phy", "out_of_sequence"} <= {one.counter for one in found.counters}


def test_speeds_of_interfaces_and_ports_are_told_once(tmp_path: Path) -> None:
    (tmp_path / "n1.links").write_text(
        "link mlx5_4/1 state ACTIVE physical_state LINK_UP netdev ens1f0\n"
    )
    (tmp_path / "n1.ethtool").write_text(
        SETTINGS.format(name="ens1f0", speed="100000Mb/s", link="yes")
    )
    (port,) = host_evidence(sorted_files([tmp_path]).hosts).facts.ports
    assert (port.host, port.device, port.rate_gbs) == ("n1", "mlx5_4", 12.5)


def test_samples_whose_order_nothing_tells(tmp_path: Path) -> None:
    (tmp_path / "n1.rdma").write_text(RDMA.format(card=4, n=3) + RDMA.format(card=4, n=9))
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert {len(one.values) for one in found.counters} == {1}
    assert [(one.code, one.params["n"]) for one in found.missing] == [
        ("missing.time_of_samples", 3)
    ]


def test_a_second_port_of_a_device_is_kept_apart(tmp_path: Path) -> None:
    text = RDMA.format(card=0, n=1) + RDMA.format(card=0, n=2).replace("/1", "/2")
    (tmp_path / "n1.rdma").write_text(text)
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert {one.device for one in found.counters} == {"mlx5_0", "mlx5_0/2"}


def test_results_in_json_beside_tables(tmp_path: Path) -> None:
    """The slow host of pairs, as in tables."""
    for one in range(5):
        for other in range(one + 1, 5):
            gbs = 90.0 if 3 in {one, other} else 180.0 + one
            text = json_report(*(json_result(size, out_of_place=part(gbs, gbs)) for size in SIZES))
            for name, host in (("gpu0", one), ("gpu1", other)):
                text = text.replace(f'"{name}"', f'"node{host:02}"')
            (tmp_path / f"{one}_{other}.json").write_text(text)
    first = diagnose([tmp_path]).verdicts[0]
    assert (first.cause, first.culprits) == (Cause.SLOW_LINK, ())
    assert "node03" in {link.value for link in first.chain}
    assert "secret" not in str(first)


def test_bridges_that_redirect_where_an_op_is_stuck(tmp_path: Path) -> None:
    found = []
    for redirects in (True, False):
        folder = tmp_path / str(redirects)
        job = NcclJob(1, 2)
        for rank in range(2):
            job.info(
                rank, 1, f"Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/IPC"
            )
        world = {"0": Group("default_pg", (0, 1))}
        programs = {rank: [Call("0", "all_reduce", (64,))] for rank in range(2)}
        job.write(folder)
        write_dumps(folder, FlightJob(world, programs, dead={(0, 0)}).play())
        text = "".join(
            bridge(f"0{k + 1}:00.0", f"{0x0B + 4 * k:02x}", f"{0x0B + 4 * k:02x}", redirects)
            + device(f"{0x0B + 4 * k:02x}:00.0", "3D controller: NVIDIA Corporation GH100")
            for k in range(2)
        )
        (folder / "node0.lspci").write_text(text)
        found.append({one.cause for one in diagnose([folder]).verdicts})
    assert found == [{Cause.P2P_BLOCKED}, {Cause.ALL_PRESENT_STUCK}]


def test_what_several_tools_printed_into_one_file(tmp_path: Path) -> None:
    settings = SETTINGS.format(name="ens1f0", speed="100000Mb/s", link="yes")
    parts = (
        IBSTAT, RDMA.format(card=0, n=3), settings, NIC_STATISTICS.format(n=8),
        bridge("16:00.0", "17", "17", redirects=True), "mlx5_0 port 1 ==> ens1f0 (Up)\n",
    )  # fmt: skip
    (tmp_path / "n1.txt").write_text("".join(parts))
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert (found.missing, found.unread) == ([], [])
    assert {(one.host, one.device) for one in found.counters} == {("n1", "mlx5_0")}
    assert {one.counter for one in found.counters} >= {"rx_discards_phy", "out_of_sequence"}
    assert {one.device for one in found.facts.ports} >= {"mlx5_0", "mlx5_1"}
    assert [one.is_redirecting for one in found.facts.bridges] == [True]


def test_a_part_that_does_not_read_is_told(tmp_path: Path) -> None:
    """The header of a table of nccl-tests without a row, beside ports."""
    header = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    )
    (tmp_path / "n1.txt").write_text(IBSTAT + header)
    found = host_evidence(sorted_files([tmp_path]).hosts)
    assert [Path(one.file).name for one in found.unread] == ["n1.txt"]
    assert len(found.ports) == 2
