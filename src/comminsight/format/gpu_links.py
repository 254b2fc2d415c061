"""NVLinks of GPUs, as ``nvidia-smi nvlink -s`` prints them, and how devices of a host reach each
other, as ``nvidia-smi topo -m`` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from comminsight.errors import InputError
from comminsight.format.host_lines import by_host
from comminsight.model.host_facts import DevicePath, HostDevice, NumaNode, NvLinkState

NEXT_STEP = "give all that nvidia-smi nvlink -s or nvidia-smi topo -m printed"
MAX_DEVICES = 1024
MAX_CORES = 1 << 16
_BEFORE = rb"\A(?:\s*#[^\n]*\n)*\s*(?:[A-Za-z][\w.-]*: ?)?"
_NVLINK = re.compile(_BEFORE + rb"GPU \d+: [^\n]*\(UUID: [^\n]*\n[^\n]{0,80}\bLink \d+: ")
_TOPO = re.compile(_BEFORE + rb"\s*(?:\x1b\[4m)?GPU\d+(?:\x1b\[0m)?\s[^\n]*CPU Affinity")
_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: .*")
_LINK = re.compile(r"\s*Link (\d{1,3}): (\S.*?)\s*")
_COLUMNS = re.compile(r"\s*GPU\d{1,4}\s.*\bCPU Affinity\b.*")
_DEVICE = re.compile(r"(?:GPU|NIC)\d{1,4}|[a-z][\w.-]{1,31}")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s*(\S{1,64})\s*")
_CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")
_CORES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
MARKS = (_GPU, _COLUMNS)


@dataclass(slots=True)
class GpuLinks:
    """What was printed, and how many devices belong to no known host. ``paths`` are those on which
    both of their ends agree."""

    nvlinks: list[NvLinkState] = field(default_factory=list)
    paths: list[DevicePath] = field(default_factory=list)
    devices: list[HostDevice] = field(default_factory=list)
    numa_nodes: list[NumaNode] = field(default_factory=list)
    n_homeless: int = 0


def is_gpu_links(head: bytes) -> bool:
    """True for a file that begins with what one of these two prints."""
    return _NVLINK.match(head) is not None or _TOPO.match(head) is not None


def parse_gpu_links(text: str, *, file_name: str = "", path: str = "") -> GpuLinks:
    """NVLinks and paths by host; raises InputError where there is neither."""
    found = GpuLinks()
    for host, lines in by_host(text, MARKS, file_name=file_name).items():
        own = GpuLinks(nvlinks=list(_nvlinks(host, lines)))
        _add_topology(host, lines, own)
        if host:
            found.nvlinks += own.nvlinks
            found.paths += own.paths
            found.devices += own.devices
            found.numa_nodes += own.numa_nodes
        else:
            devices = {link.device for link in own.nvlinks} | {one.device for one in own.paths}
            found.n_homeless += len(devices)
    if not (found.nvlinks or found.paths or found.n_homeless):
        raise InputError("no NVLink and no path in it", path=path, next_step=NEXT_STEP)
    return found


def _nvlinks(host: str, lines: Iterable[str]) -> Iterator[NvLinkState]:
    device = ""
    for line in lines:
        if gpu := _GPU.fullmatch(line):
            device = f"gpu{int(gpu[1])}"
        elif device and (link := _LINK.fullmatch(line)):
            is_up = "inactive" not in link[2].lower()
            yield NvLinkState(host=host, device=device, link=int(link[1]), is_up=is_up)


def _add_topology(host: str, lines: Sequence[str], found: GpuLinks) -> None:
    columns = next((line for line in lines if _COLUMNS.fullmatch(line)), "")
    names = _names(columns)
    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    legend = {told[1]: told[2] for line in lines if (told := _LEGEND.fullmatch(line))}
    matrix = {name: rows[name][: len(names)] for name in names if _is_row(rows.get(name), names)}
    for at, name in enumerate(names):
        for beyond, other in enumerate(names[at + 1 :], at + 1):
            kind = matrix[name][beyond] if name in matrix else ""
            if kind and other in matrix and matrix[other][at] == kind:
                one, two = _shown(name, legend), _shown(other, legend)
                found.paths.append(DevicePath(host=host, device=one, other=two, path=kind))
    if "NUMA Affinity" in columns:
        tails = {name: rows[name][len(names) :] for name in matrix if name.startswith("GPU")}
        _add_nodes(host, tails, found)


def _names(columns: str) -> list[str]:
    names = columns.partition("CPU Affinity")[0].split()
    is_known = len(names) <= MAX_DEVICES and all(_DEVICE.fullmatch(name) for name in names)
    return names if is_known else []


def _is_row(cells: Sequence[str] | None, names: Sequence[str]) -> bool:
    """False for a row that was cut, and for a cell that is no path."""
    own = (cells or ())[: len(names)]
    return len(own) == len(names) and all(_CELL.fullmatch(cell) for cell in own)


def _shown(name: str, legend: dict[str, str]) -> str:
    return name.lower() if name.startswith("GPU") else legend.get(name, name)


def _add_nodes(host: str, tails: dict[str, list[str]], found: GpuLinks) -> None:
    """The NUMA node of each GPU that tells one, and its cores where all its GPUs tell the same."""
    cores: dict[int, set[tuple[int, ...]]] = {}
    for name, tail in tails.items():
        if len(tail) > 1 and tail[1].isdecimal() and len(tail[1]) < 5:
            node = int(tail[1])
            cores.setdefault(node, set()).add(_cores(tail[0]))
            found.devices.append(
                HostDevice(host=host, device=name.lower(), is_nic=False, numa_node=node)
            )
    for node, told in sorted(cores.items()):
        if len(told) == 1 and (only := next(iter(told))):
            found.numa_nodes.append(NumaNode(host=host, numa_node=node, cores=only))


def _cores(text: str) -> tuple[int, ...]:
    """The cores in ``0-31,64-95``, none for text that is no such list."""
    parts = [_CORES.fullmatch(part) for part in text.split(",")]
    found: set[int] = set()
    for part in parts:
        if part is None or int(part[2] or part[1]) >= MAX_CORES:
            return ()
        found.update(range(int(part[1]), int(part[2] or part[1]) + 1))
    return tuple(sorted(found))
