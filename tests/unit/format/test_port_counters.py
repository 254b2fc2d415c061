"""Counters of ports as perfquery, rdma statistic and ethtool print them."""

import json

import pytest

from comminsight.errors import InputError
from comminsight.format.port_counters import (
    PortSample,
    is_port_counters,
    parse_port_counters,
    sysfs_name,
)

PERFQUERY = (
    "# Port extended counters: Lid {lid} port 1 (CapMask: 0x5300 CapMask2: 0x0000002)\n"
    "PortSelect:......................1\n"
    "CounterSelect:...................0x0000\n"
    "PortXmitData:....................1000\n"
    "SymbolErrorCounter:..............{n}\n"
    "PortXmitWait:....................77\n"
)
RDMA = "link mlx5_{card}/1 rx_write_requests 12 out_of_sequence {n} packet_seq_err 0 \n"
ETHTOOL = "NIC statistics:\n     rx_packets: 9\n     rx_discards_phy: {n}\n     [0]: tx_bytes: 4\n"


def behind(name: str, text: str) -> str:
    return "".join(f"{name}: {line}\n" for line in text.splitlines())


def told(samples: list[PortSample]) -> dict[str, int]:
    return {one.counter: one.value for one in samples}


@pytest.mark.parametrize("wrap", ["# host n1\n{}", "behind"])
def test_perfquery(wrap: str) -> None:
    text = PERFQUERY.format(lid=7, n=3)
    text = behind("n1", text) if wrap == "behind" else wrap.format(text)
    assert is_port_counters(text.encode())
    found = parse_port_counters(text).samples
    assert told(found) == {"port_xmit_data": 4000, "symbol_error": 3, "port_xmit_wait": 77}
    assert {(one.host, one.lid, one.port, one.device) for one in found} == {("n1", 7, 1, "")}


@pytest.mark.parametrize(("name", "kernels"), [
    ("LinkDownedCounter", "link_downed"), ("PortRcvRemotePhysicalErrors",
     "port_rcv_remote_physical_errors"), ("LocalLinkIntegrityErrors",
     "local_link_integrity_errors"), ("VL15Dropped", "VL15_dropped"),
    ("ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors"),
    ("PortXmitDiscards", "port_xmit_discards"), ("PortUnicastRcvPkts", "port_unicast_rcv_pkts"),
])  # fmt: skip
def test_names_of_the_kernel(name: str, kernels: str) -> None:
    assert sysfs_name(name) == kernels


def test_rdma_statistic() -> None:
    text = RDMA.format(card=0, n=5) + RDMA.format(card=1, n=0).replace("/1", "/2")
    assert is_port_counters(text.encode())
    found = parse_port_counters(text, file_name="n2.rdma").samples
    lost = [one for one in found if one.counter == "out_of_sequence"]
    assert [(one.device, one.port, one.value) for one in lost] == [
        ("mlx5_0", 1, 5), ("mlx5_1", 2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 4])
def test_rdma_statistic_in_json(indent: int | None) -> None:
    rows = [{"ifname": "mlx5_3", "port": 1, "rx_write_requests": 4, "packet_seq_err": 9,
             "word": "x", "is": True}]  # fmt: skip
    text = json.dumps(rows, indent=indent)
    assert is_port_counters(text.encode())
    found = parse_port_counters(text, file_name="n2.rdma.txt").samples
    assert told(found) == {"rx_write_requests": 4, "packet_seq_err": 9}
    assert {(one.host, one.device) for one in found} == {("n2", "mlx5_3")}


@pytest.mark.parametrize("before", [
    "$ ethtool -S ens1f0\n", "+ ethtool --statistics ens1f0\n", "# interface ens1f0\n",
    "Settings for ens1f0:\n\tSpeed: 100000Mb/s\n",
])  # fmt: skip
def test_ethtool(before: str) -> None:
    text = "# host n1\n" + before + ETHTOOL.format(n=8)
    assert is_port_counters(text.encode())
    found = parse_port_counters(text).samples
    assert told(found)["rx_discards_phy"] == 8
    assert {one.interface for one in found} == {"ens1f0"}


def test_an_interface_that_nothing_names() -> None:
    found = parse_port_counters("# host n1\n" + ETHTOOL.format(n=8))
    assert (found.samples, found.n_homeless) == ([], 2)


@pytest.mark.parametrize(("stamp", "time_ns"), [
    ("2026-05-04T06:00:00Z", 1_777_874_400_000_000_000),
    ("2026-05-04T08:00:00.5+02:00", 1_777_874_400_500_000_000),
    ("1777874400", 1_777_874_400_000_000_000), ("1777874400.25", 1_777_874_400_250_000_000),
    ("2026-05-04T06:00:00", 0), ("yesterday", 0), ("0001-01-01T00:00:00+23:00", 0),
])  # fmt: skip
def test_times(stamp: str, time_ns: int) -> None:
    text = f"# host n1\n# time {stamp}\n{PERFQUERY.format(lid=9, n=1)}"
    assert {one.time_ns for one in parse_port_counters(text).samples} == {time_ns}


@pytest.mark.parametrize("text", [
    "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0\n", "PortXmitWait:....1\n",
    '[{"ifname":"mlx5_0","port":1,"state":"ACTIVE"}]',
])  # fmt: skip
def test_other_words_of_these_tools(text: str) -> None:
    assert not is_port_counters(text.encode())
    with pytest.raises(InputError, match="no counter of a port"):
        parse_port_counters(text, file_name="n1.txt")


def test_json_that_was_cut() -> None:
    with pytest.raises(InputError, match=r"n1\.json: does not read"):
        parse_port_counters('[{"ifname":"mlx5_0","port":1,"out_of_sequence":1', file_name="n1.rdma",
                            path="n1.json")  # fmt: skip
