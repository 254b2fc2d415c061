"""CPU masks of GPUs' threads that differ between two runs, and cores that are far from the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from comminsight.analysis.log_ranks import short_host
from comminsight.analysis.run_differences import cores_of
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.job_finding import told
from comminsight.model.host_facts import HostFacts
from comminsight.model.verdict import Evidence

Masks = Mapping[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class MaskChange:
    """GPUs of a host whose threads are bound to ``mask`` and in the other run to ``other``."""

    host: str
    gpus: tuple[int, ...]
    mask: str
    other: str


def mask_changes(here: Masks, there: Masks) -> Iterator[MaskChange]:
    """The masks that both runs tell of a GPU and that differ, GPUs of one change together."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for host, gpu in sorted(here.keys() & there.keys()):
        mask, other = here[host, gpu], there[host, gpu]
        if mask != other:
            found.setdefault((host, mask, other), []).append(gpu)
    for (host, mask, other), gpus in found.items():
        yield MaskChange(host, tuple(gpus), mask, other)


def not_local(hosts: HostFacts, changes: Iterable[MaskChange]) -> list[Evidence]:
    """Evidence for each GPU whose mask has no core of its NUMA node, where both are told."""
    nodes = {(short_host(n.host), n.numa_node): frozenset(n.cores) for n in hosts.numa_nodes}
    gpus = {(short_host(d.host), d.device): d.numa_node for d in hosts.devices if not d.is_nic}
    found = []
    for change in changes:
        cores = cores_of(change.mask)
        for gpu in change.gpus:
            node = gpus.get((change.host, f"gpu{gpu}"), -1)
            local = nodes.get((change.host, node))
            if cores is not None and local and cores.isdisjoint(local):
                found.append(
                    told(
                        codes.MASK_NOT_LOCAL, kind="host", host=change.host, gpu=gpu,
                        numa_node=node,
                    )
                )  # fmt: skip
    return found


def mask_said(change: MaskChange) -> Evidence:
    """The sentence on it."""
    return told(
        codes.MASK_DIFFERS, kind="log", host=change.host, gpus=change.gpus, mask=change.mask,
        other=change.other,
    )  # fmt: skip
