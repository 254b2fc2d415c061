"""What tools printed of hosts and links: bandwidth tables, ports, GIDs, counters over
time, NVLinks and paths between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_host import (
    COUNTER_LINES,
    HOMELESS,
    TEST_ROWS,
    TEST_WRONG,
    UNKNOWN_TEST,
)
from comminsight.errors import InputError
from comminsight.format.counter_table import is_counter_table, parse_counter_table
from comminsight.format.expanding import expanded_bytes
from comminsight.format.gpu_links import is_gpu_links, parse_gpu_links
from comminsight.format.ib_ports import is_ib_ports, parse_ib_ports
from comminsight.format.nccl_tests import is_nccl_tests, parse_nccl_tests
from comminsight.format.regular_file import read_regular
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import (
    DevicePath,
    GidEntry,
    HostDevice,
    HostFacts,
    NumaNode,
    NvLinkState,
    PortState,
)
from comminsight.model.job_evidence import UnreadFile
from comminsight.model.ops import Op
from comminsight.model.verdict import Message

MAX_BYTES = 256 << 20
NEXT_STEP = "give what the tool printed, in one file for each host or with its name on each line"


@dataclass(slots=True)
class HostEvidence:
    """What the files tell; ``missing`` is what of them cannot be used."""

    ports: list[PortState] = field(default_factory=list)
    gids: list[GidEntry] = field(default_factory=list)
    nvlinks: list[NvLinkState] = field(default_factory=list)
    paths: list[DevicePath] = field(default_factory=list)
    devices: list[HostDevice] = field(default_factory=list)
    numa_nodes: list[NumaNode] = field(default_factory=list)
    counters: list[CounterSeries] = field(default_factory=list)
    bandwidth: list[BandwidthRow] = field(default_factory=list)
    unread: list[UnreadFile] = field(default_factory=list)
    missing: list[Message] = field(default_factory=list)

    @property
    def facts(self) -> HostFacts:
        """All but counters and bandwidth, as rules take them."""
        return HostFacts(
            ports=tuple(self.ports),
            gids=tuple(self.gids),
            paths=tuple(self.paths),
            nvlinks=tuple(self.nvlinks),
            devices=tuple(self.devices),
            numa_nodes=tuple(self.numa_nodes),
        )

    @property
    def is_any(self) -> bool:
        """True where a file was read, even one of which nothing can be used."""
        is_counted = self.counters or self.bandwidth or self.missing
        return bool(is_counted or self.ports or self.gids or self.nvlinks or self.paths)


def is_host_file(head: bytes) -> bool:
    """True for a file that ``host_evidence`` reads."""
    return _reader(head) is not None


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
    return found


def hosts_in(data: bytes, name: str) -> set[str]:
    """The hosts that a file of this name tells of; raises InputError for what does not read."""
    found = HostEvidence()
    read = _reader(data)
    if read is not None:
        read(data.decode("utf-8", "replace"), Path(name), found)
    told: list[PortState | GidEntry | CounterSeries | NvLinkState | DevicePath] = [
        *found.ports, *found.gids, *found.counters, *found.nvlinks, *found.paths
    ]  # fmt: skip
    return {one.host for one in told} | {host for row in found.bandwidth for host in row.hosts}


def read_host_file(path: Path, found: HostEvidence | None = None) -> None:
    """Adds to ``found`` what is in one file.

    Raises InputError for what does not read, OSError for a file that the system does not give.
    """
    data = read_regular(path, MAX_BYTES + 1)
    if data is None:
        raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
    data = expanded_bytes(data, max_bytes=MAX_BYTES, path=str(path), next_step=NEXT_STEP)
    read = _reader(data)
    if read is None:
        raise InputError("is of no form that is known", path=str(path), next_step=NEXT_STEP)
    read(data.decode("utf-8", "replace"), path, HostEvidence() if found is None else found)


def _reader(data: bytes) -> Callable[[str, Path, HostEvidence], None] | None:
    forms = (
        (is_counter_table, _counters), (is_gpu_links, _gpu_links), (is_ib_ports, _ports),
        (is_nccl_tests, _tables),
    )  # fmt: skip
    return next((read for is_one, read in forms if is_one(data)), None)


def _counters(text: str, path: Path, found: HostEvidence) -> None:
    table = parse_counter_table(text, path=str(path))
    found.counters += table.series
    if table.n_bad:
        found.missing.append(message(COUNTER_LINES, n=table.n_bad, source=path.name))


def _ports(text: str, path: Path, found: HostEvidence) -> None:
    observed_ns = path.stat().st_mtime_ns if path.exists() else 0
    read = parse_ib_ports(text, file_name=path.name, path=str(path), observed_ns=observed_ns)
    found.ports += read.ports
    found.gids += read.gids
    if read.n_homeless:
        found.missing.append(message(HOMELESS, n=read.n_homeless, source=path.name))


def _gpu_links(text: str, path: Path, found: HostEvidence) -> None:
    read = parse_gpu_links(text, file_name=path.name, path=str(path))
    found.nvlinks += read.nvlinks
    found.paths += read.paths
    found.devices += read.devices
    found.numa_nodes += read.numa_nodes
    if read.n_homeless:
        found.missing.append(message(HOMELESS, n=read.n_homeless, source=path.name))


def _tables(text: str, path: Path, found: HostEvidence) -> None:
    for table in parse_nccl_tests(text, file_name=path.name, path=str(path)):
        if table.op is Op.UNKNOWN:
            found.missing.append(message(UNKNOWN_TEST, source=path.name))
        else:
            found.bandwidth += table.rows
        if table.n_bad:
            found.missing.append(message(TEST_ROWS, n=table.n_bad, source=path.name))
        if table.n_wrong:
            found.missing.append(message(TEST_WRONG, n=table.n_wrong, source=path.name))
