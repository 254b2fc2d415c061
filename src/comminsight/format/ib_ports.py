"""Ports of network devices and their GIDs, as ``ibstat``, ``ibv_devinfo -v`` and ``show_gids``
print them (rdma-core, MLNX_OFED)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address

from comminsight.errors import InputError
from comminsight.format.host_lines import by_host
from comminsight.model.host_facts import GidEntry, PortState

NEXT_STEP = "give what ibstat, ibv_devinfo -v or show_gids printed"
MAX_ENTRIES = 1 << 18
GBIT = 1 / 8  # GB/s of a Gbit/s
_CA = re.compile(r"CA '([\w.-]{1,64})'\s*")
_HCA = re.compile(r"hca_id:\s*([\w.-]{1,64})\s*")
_IBSTAT_PORT = re.compile(r"\s+Port (\d{1,3}):\s*", re.ASCII)
_DEVINFO_PORT = re.compile(r"\s+port:\s*(\d{1,3})\s*", re.ASCII)
_FIELD = re.compile(r"\s+([A-Za-z][\w ]{0,40}):\s*(\S.*)")
_GID = re.compile(r"\s+GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})(?:,(.*))?", re.ASCII)
_SHOW_GIDS = re.compile(r"DEV\s+PORT\s+INDEX\s+GID\s+IPv4\s+VER\s+DEV\s*")
_SHOWN = re.compile(
    r"([\w.-]{1,64})\s+(\d{1,3})\s+(\d{1,4})\s+([0-9a-fA-F:.]{2,45})\s+(?:[\d.]+\s+)?(v1|v2|ib)\b(?:\s+([\w.-]{1,64}))?.*",
    re.ASCII,
)
MARKS = (_CA, _HCA, _SHOW_GIDS)
_WORDS = (b"CA '", b"hca_id:", b"DEV")  # one of them is in every such file
_HEAD = re.compile(
    rb"^(?:[A-Za-z][\w.-]*: ?)?(?:CA '[\w.-]+'|hca_id:\s*\S|DEV\s+PORT\s+INDEX\s+GID)", re.MULTILINE
)
_STATES = {"PORT_ACTIVE": "active", "PORT_DOWN": "down", "PORT_INIT": "init", "PORT_ARMED": "armed"}
_KINDS = {"RoCE v1": "v1", "RoCE v2": "v2", "IB/RoCE v1": "v1", "IB": "ib"}
_WIDTH = re.compile(r"(\d{1,2})X\b", re.ASCII)
_SPEED = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s*Gb", re.ASCII)
_LID = re.compile(r"(0x[0-9a-f]{1,4}|[1-9]\d{0,4}|0)", re.ASCII)
MAX_LID = 0xBFFF  # above are groups
_RATE = re.compile(r"\d{1,5}", re.ASCII)
_MTU = re.compile(r"(\d{1,6})\b", re.ASCII)


@dataclass(slots=True)
class HostPorts:
    """What was printed; ``device_of[host, interface]`` is the device above a network interface, and
    ``n_homeless`` how many lines of ports belong to no known host."""

    ports: list[PortState] = field(default_factory=list)
    gids: list[GidEntry] = field(default_factory=list)
    device_of: dict[tuple[str, str], str] = field(default_factory=dict)
    n_homeless: int = 0


def is_ib_ports(head: bytes) -> bool:
    """True where one of these tools printed it."""
    return any(word in head for word in _WORDS) and _HEAD.search(head) is not None


def parse_ib_ports(
    text: str, *, file_name: str = "", path: str = "", observed_ns: int = 0
) -> HostPorts:
    """Ports and GIDs by host; raises InputError where there is neither."""
    found = HostPorts()
    for host, lines in by_host(text, MARKS, file_name=file_name).items():
        ports = list(_ports(host, lines))
        gids = [*_shown_gids(host, lines, observed_ns), *_listed_gids(host, lines, observed_ns)]
        if host:
            found.ports += ports
            found.gids += gids
            found.device_of |= dict(_interfaces(host, lines))
        else:
            found.n_homeless += len(ports) + len(gids)
    if not (found.ports or found.gids or found.n_homeless):
        raise InputError("no port and no GID in it", path=path, next_step=NEXT_STEP)
    if len(found.gids) > MAX_ENTRIES or len(found.ports) > MAX_ENTRIES:
        raise InputError(f"more than {MAX_ENTRIES:,} entries", path=path, next_step=NEXT_STEP)
    return found


def _ports(host: str, lines: Iterable[str]) -> Iterator[PortState]:
    device, port, fields = "", 0, dict[str, str]()
    for line in lines:
        if new := _CA.fullmatch(line) or _HCA.fullmatch(line):
            if device and port:
                yield _port(host, device, port, fields)
            device, port, fields = new[1], 0, {}
        elif begun := _IBSTAT_PORT.fullmatch(line) or _DEVINFO_PORT.fullmatch(line):
            if device and port:
                yield _port(host, device, port, fields)
            port, fields = int(begun[1]), {}
        elif port and (told := _FIELD.fullmatch(line)):
            fields.setdefault(told[1].lower(), told[2].strip())
    if device and port:
        yield _port(host, device, port, fields)


def _port(host: str, device: str, port: int, fields: dict[str, str]) -> PortState:
    state = fields.get("state", "")
    mtu = _MTU.match(fields.get("active_mtu", ""))
    return PortState(
        host=host,
        device=device,
        port=port,
        state=_STATES.get(state.split()[0], state.lower()) if state else "",
        rate_gbs=_rate_gbs(fields),
        active_mtu_bytes=int(mtu[1]) if mtu is not None else 0,
        link_layer=fields.get("link layer", fields.get("link_layer", "")).lower(),
        guid=_guid(fields.get("port guid", "")),
        lid=_lid(fields),
    )


def _rate_gbs(fields: dict[str, str]) -> float:
    """ibstat tells the whole rate, ibv_devinfo lanes and the rate of each; 0 where neither does."""
    if _RATE.fullmatch(fields.get("rate", "")):
        return int(fields["rate"]) * GBIT
    width, speed = (
        _WIDTH.match(fields.get("active_width", "")),
        _SPEED.match(fields.get("active_speed", "")),
    )
    return int(width[1]) * float(speed[1]) * GBIT if width and speed else 0.0


def _lid(fields: dict[str, str]) -> int:
    told = _LID.fullmatch(fields.get("base lid", fields.get("port_lid", "")))
    return int(told[1], 0) if told is not None and int(told[1], 0) <= MAX_LID else 0


def _guid(text: str) -> str:
    digits = text.removeprefix("0x").lower()
    return digits if digits.strip("0") else ""


def _shown_gids(host: str, lines: Iterable[str], observed_ns: int) -> Iterator[GidEntry]:
    for line in lines:
        if told := _SHOWN.fullmatch(line):
            yield _gid(host, told[1], int(told[2]), int(told[3]), told[4], told[5], observed_ns)


def _interfaces(host: str, lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    for line in lines:
        if (told := _SHOWN.fullmatch(line)) and told[6]:
            yield (host, told[6]), told[1]


def _listed_gids(host: str, lines: Iterable[str], observed_ns: int) -> Iterator[GidEntry]:
    """Those of ibv_devinfo -v, which names the kind behind a comma."""
    device, port = "", 0
    for line in lines:
        if new := _HCA.fullmatch(line):
            device, port = new[1], 0
        elif begun := _DEVINFO_PORT.fullmatch(line):
            port = int(begun[1])
        elif device and port and (told := _GID.fullmatch(line)):
            kind = _KINDS.get((told[3] or "").strip(), "")
            yield _gid(host, device, port, int(told[1]), told[2], kind, observed_ns)


def _gid(
    host: str, device: str, port: int, index: int, gid: str, kind: str, observed_ns: int
) -> GidEntry:
    return GidEntry(
        host=host, device=device, port=port, index=index, gid=_address(gid), kind=kind,
        observed_ns=observed_ns,
    )  # fmt: skip


def _address(text: str) -> str:
    """The address in its short form; "" for an empty entry and for what is none."""
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return ""
    return "" if address.is_unspecified else str(address)
