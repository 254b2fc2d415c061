"""Ports and GIDs as the tools of InfiniBand print them, and whose they are."""

from ipaddress import IPv6Address

import pytest

from comminsight.errors import InputError
from comminsight.format.ib_ports import is_ib_ports, parse_ib_ports
from comminsight.model.host_facts import GidEntry, PortState

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tNode GUID: 0x1070fd0300a1b2c3
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tPort GUID: 0x1070fd0300a1b2c3
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Down
\t\tRate: 40
\t\tPort GUID: 0x0000000000000000
\t\tLink layer: Ethernet
"""
DEVINFO = """hca_id:\tmlx5_2
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t25.0 Gbps (32)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0e42:a1ff:fe5c:0001, RoCE v1
\t\t\tGID[  3]:\t\t::ffff:10.0.3.7, RoCE v2
"""
SHOW_GIDS = """DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t0\tfe80:0000:0000:0000:0e42:a1ff:fe5c:0001\t\t\tv1\teth0
mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0307\t10.0.3.7  \tv2\teth0
n_gids_found=2
"""
PORTS = [
    PortState(host="n7", device="mlx5_0", state="active", rate_gbs=50.0, link_layer="infiniband",
              guid="1070fd0300a1b2c3"),
    PortState(host="n7", device="mlx5_1", state="down", rate_gbs=5.0, link_layer="ethernet"),
]  # fmt: skip


def prefixed(text: str, host: str, colon: str = ": ") -> str:
    return "".join(f"{host}{colon}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "file_name"),
    [
        (IBSTAT, "n7.ibstat"),
        (IBSTAT, "n7.ibstat.txt"),
        ("# host: n7\n" + IBSTAT, "ports.out.of.ibstat"),
        ("# hostname n7\n" + IBSTAT, ""),
        (prefixed(IBSTAT, "n7"), "all.txt"),
        (prefixed(IBSTAT, "n7", ":"), "all.txt"),
    ],
)
def test_ports_and_their_host(text: str, file_name: str) -> None:
    found = parse_ib_ports(text, file_name=file_name)
    assert (found.ports, found.gids, found.n_homeless) == (PORTS, [], 0)
    assert is_ib_ports(text.encode())


def test_hosts_whose_lines_are_mixed() -> None:
    lines = zip(
        prefixed(IBSTAT, "n7").splitlines(), prefixed(IBSTAT, "n8").splitlines(), strict=True
    )
    found = parse_ib_ports("\n".join(line for pair in lines for line in pair))
    assert [(port.host, port.device) for port in found.ports] == [
        ("n7", "mlx5_0"), ("n7", "mlx5_1"), ("n8", "mlx5_0"), ("n8", "mlx5_1"),
    ]  # fmt: skip


def test_of_no_known_host_nothing_is_taken() -> None:
    found = parse_ib_ports(IBSTAT, file_name="ports")
    assert (found.ports, found.n_homeless) == ([], 2)


def test_ibv_devinfo_tells_mtu_lanes_and_gids() -> None:
    found = parse_ib_ports(DEVINFO, file_name="n7.devinfo", observed_ns=5)
    assert found.ports == [
        PortState(host="n7", device="mlx5_2", state="active", rate_gbs=12.5, active_mtu_bytes=1024,
                  link_layer="ethernet")
    ]  # fmt: skip
    assert [(gid.index, IPv6Address(gid.gid), gid.kind) for gid in found.gids] == [
        (0, IPv6Address("fe80::e42:a1ff:fe5c:1"), "v1"),
        (3, IPv6Address("::ffff:10.0.3.7"), "v2"),
    ]


def test_show_gids() -> None:
    found = parse_ib_ports(SHOW_GIDS, file_name="n7.gids", observed_ns=9)
    first, last = found.gids
    assert first == GidEntry(
        host="n7", device="mlx5_0", index=0, gid="fe80::e42:a1ff:fe5c:1", kind="v1", observed_ns=9
    )
    assert (last.index, last.kind, IPv6Address(last.gid)) == (
        3, "v2", IPv6Address("::ffff:10.0.3.7"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "CA 'mlx5_0'\n", "hca_id: mlx5_0\n", "DEV PORT INDEX GID IPv4 VER DEV"]
)
def test_nothing_in_it_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="no port and no GID"):
        parse_ib_ports(text, file_name="n7.ibstat", path="x")


@pytest.mark.parametrize(("told", "lid"), [
    ("Base lid: 21", 21), ("Base lid: 0x1f", 31), ("Base lid: 0", 0), ("Base lid: 65535", 0),
    ("Base lid: many", 0),
])  # fmt: skip
def test_the_lid_of_a_port(told: str, lid: int) -> None:
    text = IBSTAT.replace("\t\tRate: 400\n", f"\t\tRate: 400\n\t\t{told}\n")
    assert parse_ib_ports(text, file_name="n1.ibstat").ports[0].lid == lid


def test_the_lid_in_the_words_of_devinfo() -> None:
    text = DEVINFO.replace("\t\t\tstate:", "\t\t\tport_lid:\t\t7\n\t\t\tstate:")
    assert [one.lid for one in parse_ib_ports(text, file_name="n1.devinfo").ports] == [7]


def test_interfaces_that_show_gids_names() -> None:
    rows = (
        "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0307\t10.0.3.7\tv2\tens1f0np0\n"
        "mlx5_1\t1\t0\tfe80:0000:0000:0000:0e42:a1ff:fe5c:0001\t\tv1\tens1f1np1\n"
    )
    text = "DEV\tPORT\tINDEX\tGID\tIPv4\tVER\tDEV\n" + rows
    found = parse_ib_ports(text, file_name="n1.gids")
    assert found.device_of == {("n1", "ens1f0np0"): "mlx5_0", ("n1", "ens1f1np1"): "mlx5_1"}
    assert len(found.gids) == 2
