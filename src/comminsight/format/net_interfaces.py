"""Network interfaces and the RDMA devices above them, as ``ethtool IFACE``, ``rdma link show`` and
``ibdev2netdev`` print them (ethtool, iproute2, MLNX_OFED)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from comminsight.errors import InputError
from comminsight.format.host_lines import by_host
from comminsight.model.host_facts import PortState

NEXT_STEP = "give what ethtool IFACE, rdma link show or ibdev2netdev printed"
MAX_ENTRIES = 1 << 18
MEGABIT = 1 / 8000  # GB/s of a Mbit/s
_SETTINGS = re.compile(r"Settings for ([\w.-]{1,64}):")
_FIELD = re.compile(r"\s+([A-Z][\w -]{0,40}): (\S.{0,200})")
_SPEED = re.compile(r"(\d{1,8})Mb/s", re.ASCII)
_RDMA = re.compile(
    r"link ([\w.-]{1,64})/(\d{1,3}) (?:subnet_prefix \S+ lid \d+ sm_lid \d+ lmc \d+ )?"
    r"state ([A-Z_]{1,16})(?: physical_state ([A-Z_]{1,32}))?(?: netdev ([\w.-]{1,64}))?\s*",
    re.ASCII,
)
_OFED = re.compile(r"([\w.-]{1,64}) port (\d{1,3}) ==> ([\w.-]{1,64}) \((Up|Down)\)\s*", re.ASCII)
MARKS = (_SETTINGS, _RDMA, _OFED)
_WORDS = (b"Settings for ", b" state ", b" ==> ")  # one of them is in every such file
_HEAD = re.compile(
    rb"^(?:[A-Za-z][\w.-]{0,62}: ?)?(?:Settings for [\w.-]{1,64}:\s*$"
    rb"|link [\w.-]{1,64}/\d{1,3} [\w :]{0,80}state [A-Z]{2}"
    rb"|[\w.-]{1,64} port \d{1,3} ==> [\w.-]{1,64} \((?:Up|Down)\))",
    re.MULTILINE,
)


@dataclass(slots=True)
class NetInterfaces:
    """What was printed. ``device_of[host, interface]`` is the RDMA device above an interface;
    ``n_homeless`` ports belong to no known host."""

    ports: list[PortState] = field(default_factory=list)
    device_of: dict[tuple[str, str], str] = field(default_factory=dict)
    n_homeless: int = 0


def is_net_interfaces(head: bytes) -> bool:
    """True where one of these tools printed it."""
    return any(word in head for word in _WORDS) and _HEAD.search(head) is not None


def parse_net_interfaces(text: str, *, file_name: str = "", path: str = "") -> NetInterfaces:
    """Ports by host, those of ethtool by the name of the interface; raises InputError where there
    is none."""
    found = NetInterfaces()
    for host, lines in by_host(text, MARKS, file_name=file_name).items():
        own = NetInterfaces()
        _add_links(host, lines, own)
        _add_settings(host, lines, own)
        if host:
            found.ports += own.ports
            found.device_of |= own.device_of
        else:
            found.n_homeless += len(own.ports) or len(own.device_of)
    if not (found.ports or found.device_of or found.n_homeless):
        raise InputError("no network interface in it", path=path, next_step=NEXT_STEP)
    if len(found.ports) > MAX_ENTRIES or len(found.device_of) > MAX_ENTRIES:
        raise InputError(f"more than {MAX_ENTRIES:,} entries", path=path, next_step=NEXT_STEP)
    return found


def _add_links(host: str, lines: Iterable[str], found: NetInterfaces) -> None:
    for line in lines:
        if told := _RDMA.fullmatch(line):
            state = told[3].lower()
            found.ports.append(PortState(host=host, device=told[1], port=int(told[2]), state=state))
            if told[5]:
                found.device_of[host, told[5]] = told[1]
        elif told := _OFED.fullmatch(line):
            found.device_of[host, told[3]] = told[1]


def _add_settings(host: str, lines: Iterable[str], found: NetInterfaces) -> None:
    name, fields = "", dict[str, str]()
    for line in lines:
        if new := _SETTINGS.fullmatch(line):
            if name:
                found.ports.append(_port(host, name, fields))
            name, fields = new[1], {}
        elif name and (told := _FIELD.fullmatch(line)):
            fields.setdefault(told[1], told[2].strip())
    if name:
        found.ports.append(_port(host, name, fields))


def _port(host: str, name: str, fields: dict[str, str]) -> PortState:
    speed = _SPEED.fullmatch(fields.get("Speed", ""))
    return PortState(
        host=host,
        device=name,
        state={"yes": "active", "no": "down"}.get(fields.get("Link detected", ""), ""),
        rate_gbs=int(speed[1]) * MEGABIT if speed is not None else 0.0,
        link_layer="ethernet",
    )
