"""PCI bridges and their access control as lspci prints them."""

import pytest

from comminsight.errors import InputError
from comminsight.format.lspci import is_lspci, parse_lspci
from comminsight.model.host_facts import PciBridge

SWITCH = "PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)"
CONTROL = "SrcValid{s} TransBlk- ReqRedir{r} CmpltRedir{r} UpstreamFwd{s} EgressCtrl- DirectTrans-"


def device(address: str, what: str, *lines: str) -> str:
    body = "".join(f"\t{line}\n" for line in ("Control: I/O- Mem+ BusMaster+", *lines))
    return f"{address} {what}\n{body}\n"


def bridge(address: str, secondary: str, last: str, redirects: bool | None) -> str:
    lines = [f"Bus: primary=00, secondary={secondary}, subordinate={last}, sec-latency=0"]
    if redirects is not None:
        sign = "+" if redirects else "-"
        lines += ["Capabilities: [170 v1] Access Control Services",
                  "\tACSCap:\t" + CONTROL.format(s="+", r="+"),
                  "\tACSCtl:\t" + CONTROL.format(s=sign, r=sign)]  # fmt: skip
    return device(address, SWITCH, *lines)


def tree(*, port: bool | None, root: bool | None, form: str = "{}") -> str:
    """A root port, a switch of two ports below it with a GPU and a NIC, and a console."""
    return (
        bridge(form.format("14:01.0"), "15", "1a", root)
        + bridge(form.format("16:00.0"), "17", "17", port)
        + bridge(form.format("16:01.0"), "18", "18", port)
        + device(form.format("17:00.0"), "3D controller: NVIDIA Corporation GH100 [H100 SXM5]")
        + device(form.format("18:00.0"), "Infiniband controller: Mellanox Technologies MT2910")
        + device(form.format("18:00.1"), "Non-Volatile memory controller: Samsung PM9A3")
        + device(form.format("03:00.0"), "VGA compatible controller: ASPEED Technology AST2600")
    )


@pytest.mark.parametrize(("form", "before"), [("{}", "0000:"), ("000a:{}", "")])
@pytest.mark.parametrize(("port", "root"), [(True, False), (False, True), (None, None)])
def test_bridges_with_what_is_plugged_into_them(
    form: str, before: str, port: bool | None, root: bool | None
) -> None:
    text = "# host n1\n" + tree(port=port, root=root, form=form)
    assert is_lspci(text.encode())

    def name(address: str) -> str:
        return before + form.format(address)

    assert parse_lspci(text).bridges == [
        PciBridge(host="n1", bus_id=name("14:01.0"), is_redirecting=bool(root)),
        PciBridge(host="n1", bus_id=name("16:00.0"), is_redirecting=bool(port),
                  below=(name("17:00.0"),)),
        PciBridge(host="n1", bus_id=name("16:01.0"), is_redirecting=bool(port),
                  below=(name("18:00.0"),)),
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["n1", "ab"])
def test_hosts_before_the_lines(host: str) -> None:
    text = "".join(f"{host}: {line}\n" for line in tree(port=True, root=None).splitlines())
    assert is_lspci(text.encode())
    assert {one.host for one in parse_lspci(text).bridges} == {host}


def test_buses_that_look_like_names_of_hosts() -> None:
    text = tree(port=True, root=False).replace("16:0", "af:0").replace("17:00.0", "b0:00.0")
    found = parse_lspci(text, file_name="gpu7.lspci")
    assert {one.host for one in found.bridges} == {"gpu7"}


def test_what_root_alone_sees() -> None:
    text = tree(port=None, root=None).replace("\tBus:", "\tCapabilities: <access denied>\n\tBus:")
    found = parse_lspci(text, file_name="n1.lspci.txt")
    assert (found.bridges, found.n_denied) == ([], 3)


def test_nobodys_bridges_are_counted() -> None:
    found = parse_lspci(tree(port=True, root=True), file_name="lspci.txt")
    assert (found.bridges, found.n_homeless) == ([], 3)


def test_no_device() -> None:
    assert not is_lspci(b"00:01.0 PCI bridge without more\n")
    with pytest.raises(InputError, match=r"x: no PCI device"):
        parse_lspci("\tACSCtl:\tReqRedir+\n", path="x")
