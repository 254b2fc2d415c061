"""Counters of ports at one moment, as ``perfquery``, ``rdma statistic show`` and ``ethtool -S``
print them (infiniband-diags, iproute2, ethtool).

None of them prints the time: a line ``# time 2026-05-04T06:00:00Z`` (or seconds since 1970) before
what was printed tells it, else the time of the file. ``perfquery`` names a port by its LID, and
``ethtool -S`` none at all: the command line above it, a line ``# interface eth0``, or the settings
that ``ethtool eth0`` printed before it do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.host_lines import by_host

NEXT_STEP = "give what perfquery, rdma statistic show or ethtool -S printed, with # time before it"
MAX_SAMPLES = 1 << 22
MAX_VALUE = 1 << 64
_PERFQUERY = re.compile(
    r"# Port (?:extended )?counters: Lid (\d{1,5}) port (\d{1,3})\b.*", re.ASCII
)
_DOTTED = re.compile(r"([A-Za-z][A-Za-z0-9]{1,48}):\.*(\d{1,20})", re.ASCII)
_RDMA = re.compile(r"link ([\w.-]{1,64})/(\d{1,3}) ([\w.-]{1,64} \d{1,20}(?: .*)?)", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)
_STATISTICS = re.compile(r"NIC statistics:")
_STATISTIC = re.compile(r"\s+([\w.\[\] -]{1,64}): (\d{1,20})", re.ASCII)
_TIME = re.compile(r"#\s*time\s*[:=]?\s+(\S{1,40})\s*", re.IGNORECASE)
_INTERFACE = re.compile(r"#\s*(?:interface|device)\s*[:=]?\s+([\w.-]{1,64})\s*", re.IGNORECASE)
_COMMAND = re.compile(r".{0,80}?\bethtool (?:-S|--statistics) ([\w.-]{1,64})\s*")
_SETTINGS = re.compile(r"Settings for ([\w.-]{1,64}):")
_EPOCH = re.compile(r"\d{9,11}(?:\.\d{1,9})?", re.ASCII)
MARKS = (_PERFQUERY, _RDMA, _STATISTICS)
_WORDS = (b"counters: Lid ", b"NIC statistics:", b"link ")  # one of them is in every such text
_HEAD = re.compile(
    rb"^(?:[A-Za-z][\w.-]{0,62}: ?)?(?:# Port (?:extended )?counters: Lid \d|NIC statistics:"
    rb"|link [\w.-]{1,64}/\d{1,3} \w{1,64} \d{1,20} \w)",
    re.MULTILINE,
)
_JSON_HEAD = re.compile(
    rb'\s*\[\s*\{[^{}]{0,200}"ifname"\s*:\s*"[\w.-]{1,64}"\s*,\s*"port"\s*:\s*\d'
)
_JSON_COUNTER = re.compile(rb'"(?:rx_write_requests|duplicate_request|out_of_sequence)"')
WORDS_OF_DATA = 4  # InfiniBand counts data in words of four bytes
NOT_COUNTERS = frozenset({"PortSelect", "CounterSelect", "CounterSelect2"})
_JOINED = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")
# those whose names in sysfs are no mere change of letters
SYSFS_NAMES = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed", "VL15Dropped": "VL15_dropped",
    "PortXmitPkts": "port_xmit_packets", "PortRcvPkts": "port_rcv_packets",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PortSample:
    """One counter of one port at ``time_ns`` (0: not told). The port is that of ``device``, else of
    the network interface ``interface``, else that with the LID ``lid``."""

    host: str
    counter: str
    value: int
    time_ns: int = 0
    device: str = ""
    interface: str = ""
    lid: int = 0
    port: int = 1


@dataclass(slots=True)
class PortSamples:
    """The samples in the order in which they were printed; ``n_homeless`` name no host or port."""

    samples: list[PortSample] = field(default_factory=list)
    n_homeless: int = 0


def is_port_counters(head: bytes) -> bool:
    """True where one of these tools printed it."""
    is_json = _JSON_HEAD.match(head) is not None and _JSON_COUNTER.search(head) is not None
    return is_json or (any(word in head for word in _WORDS) and _HEAD.search(head) is not None)


def parse_port_counters(text: str, *, file_name: str = "", path: str = "") -> PortSamples:
    """The samples by host; raises InputError where there is none, or too many."""
    found = PortSamples()
    for host, lines in by_host(text, MARKS, file_name=file_name).items():
        whole = "\n".join(lines)
        is_json = _JSON_HEAD.match(whole.encode("utf-8", "replace")) is not None
        for sample in _of_json(host, whole, path) if is_json else _of_text(host, lines):
            if host and (sample.device or sample.interface or sample.lid):
                found.samples.append(sample)
            else:
                found.n_homeless += 1
            if len(found.samples) > MAX_SAMPLES:
                raise InputError(
                    f"more than {MAX_SAMPLES:,} values", path=path, next_step=NEXT_STEP
                )
    if not (found.samples or found.n_homeless):
        raise InputError("no counter of a port in it", path=path, next_step=NEXT_STEP)
    return found


@dataclass(slots=True)
class _Place:
    """Where the lines stand: the last time and interface that were told, and the open block."""

    time_ns: int = 0
    interface: str = ""
    lid: int = 0
    port: int = 0
    is_ethernet: bool = False


def _of_text(host: str, lines: Iterable[str]) -> Iterator[PortSample]:
    at = _Place()
    for line in lines:
        if _has_moved(at, line):
            continue
        if at.lid and (told := _DOTTED.fullmatch(line)):
            if told[1] not in NOT_COUNTERS and int(told[2]) < MAX_VALUE:
                yield _of_lid(host, at, told[1], int(told[2]))
        elif at.is_ethernet and (told := _STATISTIC.fullmatch(line)):
            if int(told[2]) < MAX_VALUE:
                yield PortSample(host, told[1].strip(), int(told[2]), at.time_ns, "", at.interface)
        elif told := _RDMA.fullmatch(line):
            yield from _of_link(host, at, told[1], int(told[2]), told[3])


def _has_moved(at: _Place, line: str) -> bool:
    """True for a line that says what the next ones are of."""
    if told := _TIME.fullmatch(line):
        at.time_ns = _time_ns(told[1])
    elif (
        told := _INTERFACE.fullmatch(line) or _COMMAND.fullmatch(line) or _SETTINGS.fullmatch(line)
    ):
        at.interface, at.is_ethernet, at.lid = told[1], False, 0
    elif told := _PERFQUERY.fullmatch(line):
        at.lid, at.port, at.is_ethernet = int(told[1]), int(told[2]), False
    elif _STATISTICS.fullmatch(line):
        at.is_ethernet, at.lid = True, 0
    else:
        return False
    return True


def _of_lid(host: str, at: _Place, name: str, value: int) -> PortSample:
    is_data = name in {"PortXmitData", "PortRcvData"}
    return PortSample(
        host, sysfs_name(name), value * WORDS_OF_DATA if is_data else value, at.time_ns,
        lid=at.lid, port=at.port,
    )  # fmt: skip


def sysfs_name(name: str) -> str:
    """The name under which the kernel has a counter that perfquery prints."""
    return SYSFS_NAMES.get(name) or _JOINED.sub("_", name).lower()


def _of_link(host: str, at: _Place, device: str, port: int, told: str) -> Iterator[PortSample]:
    words = told.split()
    for name, value in zip(words[::2], words[1::2], strict=False):
        if _NUMBER.fullmatch(value) and int(value) < MAX_VALUE:
            yield PortSample(host, name, int(value), at.time_ns, device, port=port)


def _of_json(host: str, text: str, path: str) -> Iterator[PortSample]:
    try:
        rows = msgspec.json.decode(text.encode("utf-8", "replace"), type=list[dict[str, object]])
    except UNREADABLE as error:
        raise InputError(f"does not read: {error}", path=path, next_step=NEXT_STEP) from error
    for row in rows:
        device, port = row.get("ifname"), row.get("port")
        if not isinstance(device, str) or not isinstance(port, int):
            continue
        for name, value in row.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if is_number and name not in {"ifindex", "port"} and 0 <= int(str(value)) < MAX_VALUE:
                yield PortSample(host, name, int(str(value)), 0, device, port=port)


def _time_ns(text: str) -> int:
    """A stamp with its zone or in seconds since 1970, as ns; 0 for any other."""
    if _EPOCH.fullmatch(text):
        seconds, _, part = text.partition(".")
        return int(seconds) * 10**9 + int(part.ljust(9, "0") or 0)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if when.tzinfo is None:
        return 0
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000)
