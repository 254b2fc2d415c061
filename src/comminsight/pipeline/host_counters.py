"""Counters and ports from several files of one job as one: samples by time, names of one kind.

A port has up to three names: its RDMA device, the network interface below it, its LID. Rules know
it by the first, so that the others are replaced by it where some file tells which it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from comminsight.analysis.log_ranks import short_host
from comminsight.format.port_counters import PortSample
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import PortState

Place = tuple[str, str]  # host, device or interface
_Key = tuple[str, str, str]


@dataclass(slots=True)
class PortNames:
    """The RDMA devices by what else they are called; names without domain."""

    by_interface: dict[Place, str] = field(default_factory=dict)
    by_lid: dict[int, set[tuple[str, str, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, ports: Iterable[PortState], device_of: Mapping[Place, str]) -> PortNames:
        """The names that all files together tell."""
        found = cls({(short_host(host), name): to for (host, name), to in device_of.items()})
        for port in ports:
            if port.lid:
                place = (short_host(port.host), port.device, port.port)
                found.by_lid.setdefault(port.lid, set()).add(place)
        return found

    def device(self, host: str, name: str) -> str:
        """The RDMA device above an interface; the name itself where none is known."""
        return self.by_interface.get((short_host(host), name), name)

    def place(self, sample: PortSample) -> Place:
        """Host and device of a sample, blanks where nothing tells them. A second port of a device
        has the number behind it: maps of links name devices alone."""
        host, device, port = sample.host, sample.device or sample.interface, sample.port
        if sample.lid:
            told = self.by_lid.get(sample.lid, set())
            host, device, port = next(iter(told)) if len(told) == 1 else ("", "", 0)
        device = self.device(host, device)
        return (host, f"{device}/{port}" if port > 1 else device) if device else ("", "")


def joined_counters(
    tables: Iterable[CounterSeries], samples: Iterable[PortSample], names: PortNames
) -> tuple[list[CounterSeries], int]:
    """One series of each counter, its samples by their time; and how many ports are nameless."""
    values: dict[_Key, dict[int, float]] = defaultdict(dict)
    units: dict[_Key, str] = {}
    nameless = set()
    for one in tables:
        key = (one.host, names.device(one.host, one.device), one.counter)
        units.setdefault(key, one.unit)
        values[key].update(zip(one.times_ns, one.values, strict=True))
    for sample in samples:
        host, device = names.place(sample)
        if not device:
            nameless.add((sample.host, sample.lid, sample.port))
            continue
        key = (host, device, sample.counter)
        values[key].setdefault(sample.time_ns, float(sample.value))
    return [_series(key, own, units.get(key, "")) for key, own in values.items()], len(nameless)


def _series(key: _Key, values: Mapping[int, float], unit: str) -> CounterSeries:
    host, device, counter = key
    times_ns = tuple(sorted(values))
    return CounterSeries(
        host=host, device=device, counter=counter, unit=unit, times_ns=times_ns,
        values=tuple(values[time_ns] for time_ns in times_ns),
    )  # fmt: skip


def joined_ports(ports: Sequence[PortState], names: PortNames) -> list[PortState]:
    """Each port once for each file's word on it, by its RDMA device; a word that says less than
    another one of the same port is left out."""
    named = [replace(port, device=names.device(port.host, port.device)) for port in ports]
    best: dict[tuple[str, str, int], int] = {}
    for port in named:
        key = (short_host(port.host), port.device, port.port)
        best[key] = max(best.get(key, 0), _n_told(port))
    return [
        port for port in named
        if _n_told(port) == best[short_host(port.host), port.device, port.port]
    ]  # fmt: skip


def _n_told(port: PortState) -> int:
    told = (port.rate_gbs, port.active_mtu_bytes, port.guid, port.lid, port.link_layer, port.state)
    return sum(map(bool, told))


def timed(samples: Iterable[PortSample], file_time_ns: int) -> tuple[list[PortSample], int]:
    """The samples of one file, those without a time at that of the file; and how many of these are
    left out because the same counter has one already: which is the later one is not told."""
    found, n_left_out = [], 0
    seen = set()
    for one in samples:
        if one.time_ns:
            found.append(one)
            continue
        key = (one.host, one.device, one.interface, one.lid, one.port, one.counter)
        if key in seen:
            n_left_out += 1
        else:
            seen.add(key)
            found.append(_at(one, file_time_ns))
    return found, n_left_out


def _at(sample: PortSample, time_ns: int) -> PortSample:
    return PortSample(
        sample.host, sample.counter, sample.value, time_ns, sample.device, sample.interface,
        sample.lid, sample.port,
    )  # fmt: skip
