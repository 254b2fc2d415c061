"""What tools printed of hosts and links: bandwidth tables, ports, GIDs, counters, bridges, NVLinks
and paths between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_host import (
    COUNTER_LINES,
    DENIED,
    HOMELESS,
    NAMELESS,
    TEST_ROWS,
    TEST_WRONG,
    TIMELESS,
    UNKNOWN_TEST,
)
from comminsight.errors import InputError
from comminsight.format.counter_table import is_counter_table, parse_counter_table
from comminsight.format.expanding import expanded_bytes
from comminsight.format.gpu_links import is_gpu_links, parse_gpu_links
from comminsight.format.ib_ports import is_ib_ports, parse_ib_ports
from comminsight.format.lspci import is_lspci, parse_lspci
from comminsight.format.nccl_tests import NcclTestTable, is_nccl_tests, parse_nccl_tests
from comminsight.format.nccl_tests_json import is_nccl_tests_json, parse_nccl_tests_json
from comminsight.format.net_interfaces import is_net_interfaces, parse_net_interfaces
from comminsight.format.port_counters import PortSample, is_port_counters, parse_port_counters
from comminsight.format.regular_file import read_regular
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import (
    DevicePath,
    GidEntry,
    HostDevice,
    HostFacts,
    NetInterface,
    NumaNode,
    NvLinkState,
    PciBridge,
    PortState,
)
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.ops import Op
from comminsight.model.verdict import Message
from comminsight.pipeline.host_counters import (
    Place,
    PortNames,
    joined_counters,
    joined_ports,
    timed,
)

MAX_BYTES = 256 << 20
NEXT_STEP = "give what the tool printed, in one file for each host or with its name on each line"


@dataclass(slots=True)
class HostEvidence:
    """What the files tell; ``missing`` is what of them cannot be used. ``counters`` are of tables,
    ``samples`` of single moments; ``device_of`` are RDMA devices by host and interface."""

    ports: list[PortState] = field(default_factory=list)
    gids: list[GidEntry] = field(default_factory=list)
    nvlinks: list[NvLinkState] = field(default_factory=list)
    paths: list[DevicePath] = field(default_factory=list)
    devices: list[HostDevice] = field(default_factory=list)
    numa_nodes: list[NumaNode] = field(default_factory=list)
    bridges: list[PciBridge] = field(default_factory=list)
    counters: list[CounterSeries] = field(default_factory=list)
    samples: list[PortSample] = field(default_factory=list)
    device_of: dict[Place, str] = field(default_factory=dict)
    bandwidth: list[BandwidthRow] = field(default_factory=list)
    unread: list[UnreadFile] = field(default_factory=list)
    missing: list[Message] = field(default_factory=list)

    @property
    def facts(self) -> HostFacts:
        """All but counters and bandwidth, as rules take them."""
        return HostFacts(
            ports=tuple(joined_ports(self.ports, self._names)),
            interfaces=tuple(
                NetInterface(host=host, interface=name, device=device)
                for (host, name), device in sorted(self.device_of.items())
            ),
            gids=tuple(self.gids),
            bridges=tuple(self.bridges),
            paths=tuple(self.paths),
            nvlinks=tuple(self.nvlinks),
            devices=tuple(self.devices),
            numa_nodes=tuple(self.numa_nodes),
        )

    @property
    def _names(self) -> PortNames:
        return PortNames.of(self.ports, self.device_of)

    def join_counters(self) -> None:
        """Makes one series of all samples of each counter, whatever file they are from."""
        self.counters, n_nameless = joined_counters(self.counters, self.samples, self._names)
        self.samples = []
        if n_nameless:
            self.missing.append(message(NAMELESS, n=n_nameless))

    @property
    def is_any(self) -> bool:
        """True where a file was read, even one of which nothing can be used."""
        is_counted = self.counters or self.samples or self.bandwidth or self.missing
        is_seen = self.ports or self.gids or self.nvlinks or self.paths or self.bridges
        return bool(is_counted or is_seen or self.device_of)


def is_host_file(head: bytes) -> bool:
    """True for a file that ``host_evidence`` reads."""
    return bool(_readers(head))


def host_evidence(paths: Iterable[Path]) -> HostEvidence:
    """What is in ``paths``; files that do not read are named."""
    found = HostEvidence()
    for path in paths:
        try:
            read_host_file(path, found)
        except OSError:
            found.unread.append(UnreadFile(file=str(path), reason=Message("unread.unreadable")))
        except InputError:
            found.unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))
    found.join_counters()
    return found


class _OfHost(Protocol):
    @property
    def host(self) -> str: ...


def hosts_in(data: bytes, name: str) -> set[str]:
    """The hosts that a file of this name tells of; raises InputError for what does not read."""
    found = HostEvidence()
    _read_all(data, Path(name), found)
    told: list[_OfHost] = [
        *found.ports, *found.gids, *found.counters, *found.nvlinks, *found.paths, *found.bridges,
        *found.samples,
    ]  # fmt: skip
    hosts = {one.host for one in told} | {host for host, _ in found.device_of}
    return hosts | {host for row in found.bandwidth for host in row.hosts}


def read_host_file(path: Path, found: HostEvidence | None = None) -> None:
    """Adds to ``found`` what is in one file.

    Raises InputError for what does not read, OSError for a file that the system does not give.
    """
    data = read_regular(path, MAX_BYTES + 1)
    if data is None:
        raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
    data = expanded_bytes(data, max_bytes=MAX_BYTES, path=str(path), next_step=NEXT_STEP)
    if not _readers(data):
        raise InputError("is of no form that is known", path=str(path), next_step=NEXT_STEP)
    _read_all(data, path, HostEvidence() if found is None else found)


def _read_all(data: bytes, path: Path, found: HostEvidence) -> None:
    """What each of the tools printed into the file; a part that does not read is told. Raises
    InputError where nothing of it reads."""
    text, errors = data.decode("utf-8", "replace"), []
    readers = _readers(data)
    for read in readers:
        try:
            read(text, path, found)
        except InputError as error:
            errors.append(error)
    if errors and len(errors) == len(readers):
        raise errors[0]
    if errors:  # a part of it
        found.unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))


def _readers(data: bytes) -> list[Callable[[str, Path, HostEvidence], None]]:
    forms = (
        (is_counter_table, _counters), (is_gpu_links, _gpu_links), (is_ib_ports, _ports),
        (is_nccl_tests, _tables), (is_nccl_tests_json, _json_table),
        (is_port_counters, _samples), (is_net_interfaces, _interfaces), (is_lspci, _bridges),
    )  # fmt: skip
    return [read for is_one, read in forms if is_one(data)]


def _counters(text: str, path: Path, found: HostEvidence) -> None:
    table = parse_counter_table(text, path=str(path))
    found.counters += table.series
    _note(found, COUNTER_LINES, table.n_bad, path)


def _ports(text: str, path: Path, found: HostEvidence) -> None:
    written_ns = _written_ns(path)
    read = parse_ib_ports(text, file_name=path.name, path=str(path), observed_ns=written_ns)
    found.ports += read.ports
    found.gids += read.gids
    found.device_of |= read.device_of
    _note(found, HOMELESS, read.n_homeless, path)


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _note(found: HostEvidence, code: str, n: int, path: Path) -> None:
    """That ``n`` things of the file cannot be used."""
    if n:
        found.missing.append(message(code, n=n, source=path.name))


def _samples(text: str, path: Path, found: HostEvidence) -> None:
    read = parse_port_counters(text, file_name=path.name, path=str(path))
    samples, n_left_out = timed(read.samples, _written_ns(path))
    found.samples += samples
    _note(found, TIMELESS, n_left_out, path)
    _note(found, HOMELESS, read.n_homeless, path)


def _interfaces(text: str, path: Path, found: HostEvidence) -> None:
    read = parse_net_interfaces(text, file_name=path.name, path=str(path))
    found.ports += read.ports
    found.device_of |= read.device_of
    _note(found, HOMELESS, read.n_homeless, path)


def _bridges(text: str, path: Path, found: HostEvidence) -> None:
    read = parse_lspci(text, file_name=path.name, path=str(path))
    found.bridges += read.bridges
    _note(found, DENIED, read.n_denied, path)
    _note(found, HOMELESS, read.n_homeless, path)


def _gpu_links(text: str, path: Path, found: HostEvidence) -> None:
    read = parse_gpu_links(text, file_name=path.name, path=str(path))
    found.nvlinks += read.nvlinks
    found.paths += read.paths
    found.devices += read.devices
    found.numa_nodes += read.numa_nodes
    _note(found, HOMELESS, read.n_homeless, path)


def _tables(text: str, path: Path, found: HostEvidence) -> None:
    for table in parse_nccl_tests(text, file_name=path.name, path=str(path)):
        _table(table, path, found)


def _json_table(text: str, path: Path, found: HostEvidence) -> None:
    _table(parse_nccl_tests_json(text, file_name=path.name, path=str(path)), path, found)


def _table(table: NcclTestTable, path: Path, found: HostEvidence) -> None:
    if table.op is Op.UNKNOWN:
        found.missing.append(message(UNKNOWN_TEST, source=path.name))
    else:
        found.bandwidth += table.rows
    _note(found, TEST_ROWS, table.n_bad, path)
    _note(found, TEST_WRONG, table.n_wrong, path)
