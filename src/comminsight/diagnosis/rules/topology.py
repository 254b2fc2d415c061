"""A host that hides how its GPUs and network cards hang together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import short_host
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict, told
from comminsight.model.host_facts import HostDevice
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence

RULE = "topology"
MIN_DEVICES = 2  # of each kind: with one GPU and one card there is nothing to choose


def topology_rule(job: JobEvidence) -> Iterator[Claim]:
    """TOPO_BOTTLENECK of each host on which no GPU has a switch in common with any card, no device
    tells its NUMA node, and GPU Direct is off by NCCL's own line."""
    by_host: dict[str, list[HostDevice]] = defaultdict(list)
    for device in job.hosts.devices:
        by_host[short_host(device.host)].append(device)
    off = _without_gpu_direct(job)
    for host, devices in sorted(by_host.items()):
        gpus = [device for device in devices if not device.is_nic]
        nics = [device for device in devices if device.is_nic]
        if min(len(gpus), len(nics)) >= MIN_DEVICES and _is_flat(gpus, nics) and host in off:
            yield Claim(job_verdict(job, _finding(host, len(gpus), len(nics))))


def _is_flat(gpus: Sequence[HostDevice], nics: Sequence[HostDevice]) -> bool:
    near_gpus = {switch for gpu in gpus for switch in gpu.switches}
    near_nics = {switch for nic in nics for switch in nic.switches}
    is_told = any(device.numa_node >= 0 for device in (*gpus, *nics))
    return near_gpus.isdisjoint(near_nics) and not is_told


def _without_gpu_direct(job: JobEvidence) -> set[str]:
    """Hosts on which NCCL says that GPU Direct RDMA is disabled, and nowhere that it is enabled."""
    states: dict[str, set[str]] = defaultdict(set)
    for log, event in lines_with(job.logs, LogCode.NCCL_GPU_DIRECT):
        host = short_host(event.host or log.host)
        states[host].add(str(event.values.get("state", "")).lower())
    return {host for host, seen in states.items() if seen == {"disabled"}}


def _finding(host: str, n_gpus: int, n_nics: int) -> JobFinding:
    return JobFinding(
        rule=RULE,
        cause=Cause.TOPO_BOTTLENECK,
        confidence=Confidence.MEDIUM,
        place=Place(node=host),
        evidence=(
            told(codes.NO_SWITCH, kind="host", host=host, n_gpus=n_gpus, n_nics=n_nics),
            told(codes.GDR_OFF, kind="log", host=host),
        ),
        next_actions=(message(codes.GIVE_TREE, host=host),),
    )
