"""Which steps of different ranks are the same training step.

Two steps belong together when their evidence names the same op instance: the anchor first, First
and Last as reserves. A rank that fused two steps or lost one therefore does not shift the others,
and two steps of one rank are never joined. Ranks that share no evidence meet by order index.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from comminsight.model.ops import P2P_OPS
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.model.trace import RankTrace, RunTrace

_EVIDENCE = ("anchor", "first", "last")  # in order of trust

_Identity = tuple[int, int, bool]  # comm_id, match_seq, replayed from a graph
Node = tuple[int, int]  # (session number, position of the step in the session)


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """One training step: ``members[global_rank]`` is that rank's own summary of it."""

    step: int
    members: dict[int, StepSummary]


def align_steps(trace: RunTrace) -> tuple[AlignedStep, ...]:
    """Aligned steps in ascending order; every step of every rank is in exactly one.

    ``step`` is the local step number of most members, made strictly increasing.
    """
    steps = [trace.steps.get(rank.session.session_id, ()) for rank in trace.ranks]
    groups = _Groups([rank.global_rank for rank in trace.ranks], [len(own) for own in steps])
    for name in _EVIDENCE:
        by_identity: dict[_Identity, list[Node]] = defaultdict(list)
        for session, (rank, own) in enumerate(zip(trace.ranks, steps, strict=True)):
            for position, summary in enumerate(own):
                identity = _identity(getattr(summary, name), rank)
                if identity is not None:
                    by_identity[identity].append((session, position))
        for nodes in by_identity.values():
            for node in nodes[1:]:
                groups.join(nodes[0], node)
    aligned: list[AlignedStep] = []
    for step, group in _numbered(groups, steps):
        members = {trace.ranks[s].global_rank: steps[s][position] for s, position in group}
        aligned.append(AlignedStep(step, members))
    return tuple(aligned)


def _identity(evidence: StepEvidence | None, rank: RankTrace) -> _Identity | None:
    """What the same op has on all ranks; None for P2P, whose partner the evidence does not name."""
    if evidence is None or evidence.op in P2P_OPS or evidence.match_seq <= 0:
        return None
    comm_id = int(rank.comm_ids_of(np.array(evidence.comm_index)))
    return (comm_id, evidence.match_seq, evidence.is_replay) if comm_id >= 0 else None


class _Groups:
    """Disjoint sets of steps that never hold two steps of one rank and keep every rank's order."""

    __slots__ = ("_owners", "_parent", "members")

    def __init__(self, global_ranks: list[int], n_steps: list[int]) -> None:
        nodes = [(s, position) for s, n in enumerate(n_steps) for position in range(n)]
        self._parent: dict[Node, Node] = {node: node for node in nodes}
        self._owners: dict[Node, set[int]] = {node: {global_ranks[node[0]]} for node in nodes}
        self.members: dict[Node, list[Node]] = {node: [node] for node in nodes}

    def root(self, node: Node) -> Node:
        """Representative of the node's set."""
        while (parent := self._parent[node]) != node:
            self._parent[node] = self._parent[parent]
            node = parent
        return node

    def join(self, left: Node, right: Node) -> None:
        """Unite two sets, unless some rank has a step in both."""
        a, b = self.root(left), self.root(right)
        if a == b or self._owners[a] & self._owners[b]:
            return
        if len(self.members[a]) < len(self.members[b]):
            a, b = b, a
        self._parent[b] = a
        self._owners[a] |= self._owners.pop(b)
        self.members[a] += self.members.pop(b)


def _numbered(
    groups: _Groups, steps: list[tuple[StepSummary, ...]]
) -> list[tuple[int, list[Node]]]:
    """(step number, members) in order; sets of ranks that share no evidence meet by their step
    numbers, also where other steps connect them."""
    merged: dict[int, list[Node]] = {}
    for component in _components(groups, steps):
        last: dict[int, int] = {}
        for root in _ordered(component, groups, steps):
            group = groups.members[root]
            usual = Counter(steps[s][p].step for s, p in group).most_common(1)[0][0]
            number = max(usual, *(last.get(session, -1) + 1 for session, _ in group))
            while _shares_rank(merged.get(number, []), group, steps):
                number += 1
            merged.setdefault(number, []).extend(group)
            last.update((session, number) for session, _ in group)
    return sorted(merged.items())


def _shares_rank(left: list[Node], right: list[Node], steps: list[tuple[StepSummary, ...]]) -> bool:
    ranks = {steps[s][p].global_rank for s, p in left}
    return any(steps[s][p].global_rank in ranks for s, p in right)


def _components(groups: _Groups, steps: list[tuple[StepSummary, ...]]) -> list[set[Node]]:
    """Sets of roots that are connected through common sessions, the largest first."""
    parent = list(range(len(steps)))

    def find(session: int) -> int:
        while parent[session] != session:
            session = parent[session]
        return session

    for members in groups.members.values():
        for session, _ in members[1:]:
            parent[find(session)] = find(members[0][0])
    components: dict[int, set[Node]] = defaultdict(set)
    for root, members in groups.members.items():
        components[find(members[0][0])].add(root)
    return sorted(components.values(), key=lambda roots: (-len(roots), min(roots)))


def _ordered(
    component: set[Node], groups: _Groups, steps: list[tuple[StepSummary, ...]]
) -> list[Node]:
    """Roots in an order that respects every session's own; ties and cycles by mean position."""
    after: dict[Node, set[Node]] = {root: set() for root in component}
    waiting: dict[Node, int] = dict.fromkeys(component, 0)
    for session in {s for root in component for s, _ in groups.members[root]}:
        chain = [groups.root((session, position)) for position in range(len(steps[session]))]
        for earlier, later in itertools.pairwise(chain):
            if later not in after[earlier]:
                after[earlier].add(later)
                waiting[later] += 1
    position = {
        root: (sum(p for _, p in groups.members[root]) / len(groups.members[root]), root)
        for root in component
    }
    ordered: list[Node] = []
    ready = [(position[root], root) for root, count in waiting.items() if count <= 0]
    heapq.heapify(ready)
    while waiting:
        # on a cycle nothing is ready: it is cut at its earliest member
        _, root = heapq.heappop(ready) if ready else min((position[r], r) for r in waiting)
        if waiting.pop(root, None) is None:
            continue
        ordered.append(root)
        for later in after[root] & waiting.keys():
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (position[later], later))
    return ordered
