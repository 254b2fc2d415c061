"""What tools print of hosts, written from the values that rules take."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import GidEntry, HostFacts, NvLinkState, PortState

One = TypeVar("One")
Key = TypeVar("Key")


def write_host_files(folder: Path, facts: HostFacts, counters: Sequence[CounterSeries]) -> None:
    """Ports, GIDs and counters below ``folder``: a file for each host, one for all counters."""
    folder.mkdir(parents=True)
    for host, ports in _by(facts.ports, lambda port: port.host).items():
        with_guid = [port for port in ports if port.guid or not port.active_mtu_bytes]
        others = [port for port in ports if port not in with_guid]
        _write(folder / "ibstat", host, "".join(map(ibstat, with_guid)), bool(with_guid))
        _write(folder / "devinfo", host, "".join(map(devinfo, others)), bool(others))
    for (host, time_ns), gids in _by(facts.gids, lambda e: (e.host, e.observed_ns)).items():
        place = folder / f"gids_{time_ns}"
        _write(place, host, show_gids(gids), True)
        os.utime(place / f"{host}.txt", ns=(time_ns, time_ns))
    if counters:
        (folder / "counters.csv").write_text(counter_table(counters))


def ibstat(port: PortState) -> str:
    return (
        f"CA '{port.device}'\n\tCA type: MT4129\n\tPort {port.port}:\n"
        f"\t\tState: {port.state.capitalize() or 'Active'}\n\t\tRate: {round(port.rate_gbs * 8)}\n"
        f"\t\tPort GUID: 0x{port.guid or '0'}\n\t\tLink layer: {port.link_layer.capitalize()}\n"
    )


def devinfo(port: PortState) -> str:
    state = {"": "PORT_ACTIVE", "active": "PORT_ACTIVE", "down": "PORT_DOWN"}[port.state]
    return (
        f"hca_id:\t{port.device}\n\ttransport:\tInfiniBand (0)\n\t\tport:\t{port.port}\n"
        f"\t\t\tstate:\t\t{state} (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
        f"\t\t\tactive_mtu:\t\t{port.active_mtu_bytes} (5)\n"
        f"\t\t\tlink_layer:\t\t{port.link_layer.capitalize()}\n"
        f"\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t{port.rate_gbs * 2} Gbps (32)\n"
    )


def show_gids(gids: Iterable[GidEntry]) -> str:
    rows = [
        f"{e.device}\t{e.port}\t{e.index}\t{e.gid or '0000:0000:0000:0000:0000:0000:0000:0000'}"
        f"\t\t{e.kind or 'v1'}\teth0" for e in gids
    ]  # fmt: skip
    return "\n".join(
        ["DEV\tPORT\tINDEX\tGID\tIPv4\tVER\tDEV", *rows, f"n_gids_found={len(rows)}\n"]
    )


def nvlink(states: Iterable[NvLinkState]) -> str:
    lines = []
    for device, own in _by(states, lambda state: state.device).items():
        number = str(device).removeprefix("gpu")
        lines.append(f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number}f3)")
        lines += [
            f"\t Link {one.link}: {'26.562 GB/s' if one.is_up else '<inactive>'}" for one in own
        ]
    return "\n".join(lines) + "\n"


def counter_table(counters: Iterable[CounterSeries]) -> str:
    lines = ["time_ns,host,device,counter,value,unit"]
    for one in counters:
        samples = zip(one.times_ns, one.values, strict=True)
        lines += [
            f"{time_ns},{one.host},{one.device},{one.counter},{value!r},{one.unit}"
            for time_ns, value in samples
        ]
    return "\n".join(lines) + "\n"


def _write(folder: Path, host: str, text: str, is_any: bool) -> None:
    if is_any:
        folder.mkdir(exist_ok=True)
        (folder / f"{host}.txt").write_text(f"# host {host}\n{text}")


def _by(values: Iterable[One], key: Callable[[One], Key]) -> dict[Key, list[One]]:
    found: dict[Key, list[One]] = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return found
