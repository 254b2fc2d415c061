"""PCI bridges and whether their access control redirects requests, as ``lspci -vvv`` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from comminsight.errors import InputError
from comminsight.format.host_lines import by_host
from comminsight.model.host_facts import PciBridge

NEXT_STEP = "give all that lspci -vvv printed when root ran it"
MAX_BRIDGES = 1 << 16
_ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_DEVICE = re.compile(rf"({_ADDRESS}) ([A-Z0-9][^:]{{0,60}})(?: \[[0-9a-f]{{4}}\])?: (.{{0,300}})")
_BUSES = re.compile(r"\s+Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}), subordinate=.*")
_CONTROL = re.compile(r"\s+ACSCtl:\s*(\S.*)")
_WORDS = (b"\tSubsystem: ", b"\tControl: ", b"\tDeviceName: ", b"\tPhysical Slot: ")
_HEAD = re.compile(
    rb"^(?:[A-Za-z][\w.-]{0,62}: ?)?" + _ADDRESS.encode() + rb" [A-Z0-9][^\n:]{0,80}: [^\n]*\n"
    rb"(?:[A-Za-z][\w.-]{0,62}: ?)?\t(?:Subsystem|Control|DeviceName|Physical Slot): ",
    re.MULTILINE,
)
MARKS = (_DEVICE,)
# what may take part in direct access; other VGA adapters are consoles
GPU_MAKERS = ("nvidia", "advanced micro devices", "amd/ati", "intel")
ALWAYS_END = frozenset(
    {"3d controller", "processing accelerators", "display controller", "infiniband controller",
     "ethernet controller", "network controller"}
)  # fmt: skip
DENIED = "<access denied>"


@dataclass(slots=True)
class PciBridges:
    """What was printed. ``n_homeless`` bridges belong to no known host; of ``n_denied`` devices the
    capabilities were not shown, as happens to everybody but root."""

    bridges: list[PciBridge] = field(default_factory=list)
    n_homeless: int = 0
    n_denied: int = 0


@dataclass(slots=True)
class _Device:
    address: str
    kind: str
    name: str
    secondary: str = ""  # the bus below a bridge
    control: str = ""
    is_denied: bool = False

    @property
    def domain(self) -> str:
        return self.address.rpartition(":")[0].rpartition(":")[0].rjust(4, "0")

    @property
    def bus(self) -> str:
        return self.address.rpartition(":")[0].rpartition(":")[2]

    @property
    def full_address(self) -> str:
        return f"{self.domain}:{self.bus}:{self.address.rpartition(':')[2]}"

    @property
    def is_end(self) -> bool:
        kind, name = self.kind.lower(), self.name.lower()
        is_graphics = kind == "vga compatible controller"
        return kind in ALWAYS_END or (is_graphics and any(maker in name for maker in GPU_MAKERS))


def is_lspci(head: bytes) -> bool:
    """True where ``lspci -v`` printed a device."""
    return any(word in head for word in _WORDS) and _HEAD.search(head) is not None


def parse_lspci(text: str, *, file_name: str = "", path: str = "") -> PciBridges:
    """The bridges of each host. Raises InputError where there is no device.

    Each has the GPUs and NICs that are plugged into it: their requests to each other pass the
    access control of this bridge, those of devices further down that of the one they are plugged
    into. A bridge without such a capability redirects nothing; one of which the capabilities were
    denied is left out.
    """
    found = PciBridges()
    n_devices = 0
    for host, lines in by_host(text, MARKS, file_name=file_name).items():
        devices = list(_devices(lines))
        n_devices += len(devices)
        bridges = list(_bridges(host, devices))
        found.n_denied += sum(one.is_denied for one in devices)
        if host:
            found.bridges += bridges
        else:
            found.n_homeless += len(bridges)
    if not n_devices:
        raise InputError("no PCI device in it", path=path, next_step=NEXT_STEP)
    if len(found.bridges) > MAX_BRIDGES:
        raise InputError(f"more than {MAX_BRIDGES:,} bridges", path=path, next_step=NEXT_STEP)
    return found


def _devices(lines: Iterable[str]) -> Iterator[_Device]:
    device: _Device | None = None
    for line in lines:
        if new := _DEVICE.fullmatch(line):
            if device is not None:
                yield device
            device = _Device(new[1], new[2], new[3])
        elif device is not None and (told := _BUSES.fullmatch(line)):
            device.secondary = told[1]
        elif device is not None and (told := _CONTROL.fullmatch(line)):
            device.control = told[1]
        elif device is not None and DENIED in line:
            device.is_denied = True
    if device is not None:
        yield device


def _bridges(host: str, devices: list[_Device]) -> Iterator[PciBridge]:
    below: dict[tuple[str, str], list[str]] = {}
    for device in devices:
        if device.is_end:
            below.setdefault((device.domain, device.bus), []).append(device.full_address)
    for device in devices:
        if device.secondary and not device.is_denied:
            yield PciBridge(
                host=host,
                bus_id=device.full_address,
                is_redirecting="ReqRedir+" in device.control.split(),
                below=tuple(below.get((device.domain, device.secondary), ())),
            )
