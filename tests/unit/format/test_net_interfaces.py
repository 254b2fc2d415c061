"""Interfaces and the devices above them as ethtool, rdma link and ibdev2netdev print them."""

import pytest

from comminsight.errors import InputError
from comminsight.format.net_interfaces import is_net_interfaces, parse_net_interfaces
from comminsight.model.host_facts import PortState

ETHTOOL = (
    "Settings for {name}:\n\tSupported ports: [ Backplane ]\n\tSpeed: {speed}\n"
    "\tDuplex: Full\n\tLink detected: {link}\n"
)
RDMA = (
    "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n"
    "link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 13 sm_lid 2 lmc 0 state DOWN "
    "physical_state POLLING \n"
)


@pytest.mark.parametrize(("speed", "rate_gbs"), [("200000Mb/s", 25.0), ("Unknown!", 0.0)])
@pytest.mark.parametrize(("link", "state"), [("yes", "active"), ("no", "down")])
def test_settings(speed: str, rate_gbs: float, link: str, state: str) -> None:
    text = ETHTOOL.format(name="eth0", speed=speed, link=link)
    assert is_net_interfaces(text.encode())
    assert parse_net_interfaces(text, file_name="n1.ethtool").ports == [
        PortState(host="n1", device="eth0", state=state, rate_gbs=rate_gbs, link_layer="ethernet")
    ]


@pytest.mark.parametrize("before", ["# host n1\n", "n1: "])
def test_links(before: str) -> None:
    text = (
        before + RDMA
        if before.startswith("#")
        else "".join(before + line + "\n" for line in RDMA.splitlines())
    )
    assert is_net_interfaces(text.encode())
    found = parse_net_interfaces(text)
    assert [(one.host, one.device, one.state) for one in found.ports] == [
        ("n1", "mlx5_0", "active"), ("n1", "mlx5_1", "down"),
    ]  # fmt: skip
    assert found.device_of == {("n1", "ens1f0np0"): "mlx5_0"}


def test_what_ofed_prints() -> None:
    text = "mlx5_0 port 1 ==> ib0 (Up)\nmlx5_bond_0 port 1 ==> bond0 (Down)\n"
    assert is_net_interfaces(text.encode())
    found = parse_net_interfaces(text, file_name="n1.netdev")
    assert found.device_of == {("n1", "ib0"): "mlx5_0", ("n1", "bond0"): "mlx5_bond_0"}


def test_nobodys_and_none() -> None:
    assert parse_net_interfaces(RDMA).n_homeless == 2
    with pytest.raises(InputError, match=r"x: no network interface"):
        parse_net_interfaces("link nothing\n", path="x")
