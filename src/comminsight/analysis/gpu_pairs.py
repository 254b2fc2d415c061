"""Direct access between GPUs of a host: which kinds of path work, and what lies above them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comminsight.analysis.bus_id import bus_number
from comminsight.analysis.log_ranks import short_host
from comminsight.model.host_facts import DevicePath, NvLinkState, PciBridge


@dataclass(frozen=True, slots=True)
class TriedPairs:
    """A host whose pairs were tried: those that failed and those that passed."""

    host: str
    failed: tuple[DevicePath, ...]
    passed: tuple[DevicePath, ...]

    @property
    def failed_paths(self) -> set[str]:
        """The kinds of path of the pairs that failed."""
        return {path.path for path in self.failed}

    @property
    def is_by_path(self) -> bool:
        """True where the kind of path separates what failed from what passed."""
        return self.failed_paths.isdisjoint(path.path for path in self.passed)


@dataclass(frozen=True, slots=True)
class OddLinks:
    """A GPU of which fewer NVLinks are up than of the others on its host."""

    host: str
    device: str
    n_up: int
    n_links: int


def tried_pairs(paths: Iterable[DevicePath]) -> list[TriedPairs]:
    """By host, the trials of which some failed."""
    by_host: dict[str, list[DevicePath]] = {}
    for path in paths:
        if path.is_working is not None:
            by_host.setdefault(short_host(path.host), []).append(path)
    found = [
        TriedPairs(
            host,
            tuple(path for path in own if not path.is_working),
            tuple(path for path in own if path.is_working),
        )
        for host, own in sorted(by_host.items())
    ]
    return [pairs for pairs in found if pairs.failed]


def odd_links(states: Iterable[NvLinkState]) -> list[OddLinks]:
    """GPUs with links down where every other GPU of the host has fewer down. Links that are down on
    all alike were never connected."""
    down: dict[str, dict[str, list[bool]]] = {}
    for state in states:
        own = down.setdefault(short_host(state.host), {})
        own.setdefault(state.device, []).append(state.is_up)
    found = []
    for host, devices in sorted(down.items()):
        n_down = {device: up.count(False) for device, up in devices.items()}
        most = max(n_down.values())
        worst = [device for device, n in n_down.items() if n == most]
        if most and len(worst) == 1 and len(devices) > 1:
            up = devices[worst[0]]
            found.append(OddLinks(host, worst[0], up.count(True), len(up)))
    return found


def redirected(
    bridges: Iterable[PciBridge], bus_ids: Sequence[int]
) -> list[tuple[str, list[str], list[int]]]:
    """(host, bridges, bus ids below) of hosts on which redirecting bridges stand above at least two
    of the devices, each above one of them or more."""
    by_host: dict[str, tuple[list[str], set[int]]] = {}
    for bridge in bridges:
        below = {number for name in bridge.below if (number := bus_number(name)) in bus_ids}
        if bridge.is_redirecting and below:
            names, found = by_host.setdefault(short_host(bridge.host), ([], set()))
            names.append(bridge.bus_id)
            found |= below
    return [
        (host, names, sorted(found))
        for host, (names, found) in sorted(by_host.items())
        if len(found) > 1
    ]
