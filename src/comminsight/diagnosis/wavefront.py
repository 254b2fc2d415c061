"""How far each group came, and which hosts hold the others up, over all groups at once.

A hang shows in many groups; each of them alone names the rank that its own members wait for, most
of which wait themselves. What is listed here leads from the group where waiting begins to those
that only follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.presence import WANTED, Instance, Observed
from comminsight.diagnosis.waitfor import WaitGraph
from comminsight.model.verdict import Evidence

MAX_GROUPS = 4
MAX_HOSTS = 4
MAX_WEIGHED = 16  # hosts for whose ranks the waiting is followed to its end


def wavefront(
    observed: Observed, graph: WaitGraph, culprits: tuple[int, ...]
) -> Iterator[Evidence]:
    """A line per group that waits for members, those of the culprits first, and the hosts by how
    many ranks wait for theirs in the end; nothing where a single group waits."""
    groups = _groups(observed)
    if len(groups) < 2:
        return
    own = set(culprits)
    order = sorted(groups, key=lambda one: (own.isdisjoint(one.ranks(*WANTED)), one.start_ns))
    for instance in order[:MAX_GROUPS]:
        op = instance.first_op
        said = message(
            codes.GROUP_BEHIND, comm=instance.communicator.label, op=op_name(op.op),
            last=op.match_seq - 1, ranks=list(instance.ranks(*WANTED)),
            n_waiting=len(instance.waiters),
        )  # fmt: skip
        yield Evidence(kind="graph", message=said, comm_id=op.comm_id, match_seq=op.match_seq)
    yield from _hosts(observed, graph, groups)


def _groups(observed: Observed) -> list[Instance]:
    """The oldest collective that misses members, of each communicator."""
    found: dict[int, Instance] = {}
    for instance in observed.instances:
        if not instance.key.is_p2p and instance.ranks(*WANTED):
            found.setdefault(instance.key.comm_id, instance)
    return list(found.values())


def _hosts(observed: Observed, graph: WaitGraph, groups: list[Instance]) -> Iterator[Evidence]:
    ranks_on: dict[str, set[int]] = defaultdict(set)
    direct: dict[str, int] = defaultdict(int)
    for instance in groups:
        for rank in instance.ranks(*WANTED):
            host = observed.states[rank].host if rank in observed.states else ""
            if host:
                ranks_on[host].add(rank)
                direct[host] += len(instance.waiters)
    if len({state.host for state in observed.states.values()} - {""}) < 2:
        return
    weighed = sorted(ranks_on, key=lambda host: (-direct[host], host))[:MAX_WEIGHED]
    counts = {host: len(graph.victims_of(ranks_on[host])) for host in weighed}
    best = sorted(counts, key=lambda host: (-counts[host], host))[:MAX_HOSTS]
    if best:
        said = message(codes.HOSTS_BEHIND, hosts=best, n_waiting=[counts[host] for host in best])
        yield Evidence(kind="graph", message=said)
