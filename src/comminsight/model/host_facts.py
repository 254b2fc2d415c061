"""What is known of the hosts of a job apart from its ops: ports, GIDs, PCI and NVLink paths.

Each value is one observation with its host; a reader or probe fills them, rules take them as given.
"""

from __future__ import annotations

import msgspec


class PortState(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a network device. ``rate_gbs`` is what its link trained to, in GB/s, 0 unknown;
    ports with one ``guid`` are one physical port under several names. ``lid`` is its address in an
    InfiniBand network, 0 unknown."""

    host: str
    device: str
    port: int = 1
    state: str = ""  # active, down, ...; "" unknown
    rate_gbs: float = 0.0
    active_mtu_bytes: int = 0
    link_layer: str = ""  # infiniband or ethernet
    guid: str = ""
    lid: int = 0


class NetInterface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface and the RDMA device above it."""

    host: str
    interface: str
    device: str


class GidEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a port's GID table as observed at ``observed_ns`` (0: not known when)."""

    host: str
    device: str
    index: int
    gid: str  # "" for an empty entry
    kind: str = ""  # v1 or v2 of RoCE, ib; "" unknown
    port: int = 1
    observed_ns: int = 0


class PciBridge(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI bridge with the bus ids of the GPUs and NICs below it."""

    host: str
    bus_id: str
    is_redirecting: bool  # its access control redirects requests between peers upwards
    below: tuple[str, ...] = ()


class DevicePath(msgspec.Struct, frozen=True, kw_only=True):
    """How two devices of a host reach each other.

    ``path`` is NV, PIX, PXB, PHB, NODE or SYS as the topology tools of the vendor write it, ""
    unknown. ``has_peer_access`` is what the driver offers; ``is_working`` what a trial showed; None
    where nobody asked.
    """

    host: str
    device: str
    other: str
    path: str = ""
    has_peer_access: bool | None = None
    is_working: bool | None = None


class NvLinkState(msgspec.Struct, frozen=True, kw_only=True):
    """One NVLink of a GPU."""

    host: str
    device: str
    link: int
    is_up: bool


class HostDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or NIC and where it hangs in its host. ``numa_node`` -1: the host does not tell it."""

    host: str
    device: str
    is_nic: bool
    numa_node: int = -1
    switches: tuple[str, ...] = ()  # bus ids of the PCI switches above it, the nearest first
    is_virtual: bool = False


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """The cores of one NUMA node."""

    host: str
    numa_node: int
    cores: tuple[int, ...]


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All observations of all hosts; an empty tuple: nobody looked."""

    ports: tuple[PortState, ...] = ()
    interfaces: tuple[NetInterface, ...] = ()
    gids: tuple[GidEntry, ...] = ()
    bridges: tuple[PciBridge, ...] = ()
    paths: tuple[DevicePath, ...] = ()
    nvlinks: tuple[NvLinkState, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
