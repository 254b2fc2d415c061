"""Who waits for whom, and where the waiting begins.

The graph has a node per rank and up to two per op instance: a *hard* one for what certainly
blocks its waiters (a collective, a receive, a send of which it would be told that it is over), and
a *soft* one for what may not (another send may fit a buffer; the root of a broadcast may run ahead;
the member of a reduce that is not its root; a dead process waits for nobody; what is queued behind
another op may not be waited in yet). An edge into an absent, unknown or behind member leaves the
instance's node; a member that is behind does not wait in the instance: its own stream or code holds
it. With nodes for instances, a collective of n members costs n edges and not n².

An *origin* is where every path ends: ranks that wait for nobody, or ranks that wait for each
other in a circle. A circle that only soft edges close is opened there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from comminsight.diagnosis.presence import WANTED, Instance, Observed
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import Op

Graph = dict[int, set[int]]

_FROM_ROOT = frozenset({Op.BROADCAST, Op.SCATTER})
_TO_ROOT = frozenset({Op.REDUCE, Op.GATHER})


class CycleEdge(NamedTuple):
    """``waiter`` is in ``instance``, which ``waited_for`` has not entered."""

    waiter: int
    waited_for: int
    instance: Instance


@dataclass(frozen=True, slots=True)
class Origin:
    """Ranks at which waiting begins. ``cycle`` is empty for a rank that waits for nobody;
    ``is_certain`` is false when only an op that may not block stands against it."""

    ranks: tuple[int, ...]
    victims: tuple[int, ...]
    cycle: tuple[CycleEdge, ...] = ()
    is_certain: bool = True


class WaitGraph:
    """The wait-for graph of an observed hang."""

    def __init__(self, observed: Observed) -> None:
        """Takes the instances as they are; nothing is kept of ranks outside them."""
        self._instances = observed.instances
        self._edges: Graph = defaultdict(set)
        for place, instance in enumerate(self._instances):
            self._add(place, instance, observed)
        self._backwards: Graph = defaultdict(set)
        for node, nexts in self._edges.items():
            for following in nexts:
                self._backwards[following].add(node)
        self._waiting: dict[frozenset[int], tuple[int, ...]] = {}
        self._used = {node for node in self._edges if node < 0 and self._backwards[node]}

    def origins(self) -> list[Origin]:
        """All origins, those with most victims first."""
        found = []
        for component in _components(self._edges):
            outside = {n for node in component for n in self._edges.get(node, ())} - component
            if not outside:
                found.extend(self._resolve(component))
        return sorted(found, key=lambda origin: (-len(origin.victims), origin.ranks))

    def direct_waiters(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Ranks in an instance that one of ``ranks`` has not entered, ascending."""
        wanted = set(ranks)
        return tuple(
            sorted(
                node for node, nexts in self._edges.items()
                if node >= 0 and any(wanted & self._edges.get(n, set()) for n in nexts)
            )
        )  # fmt: skip

    def victims_of(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Ranks whose waiting leads to one of ``ranks``, over any number of others, ascending."""
        return self._victims(set(ranks))

    def _add(self, place: int, instance: Instance, observed: Observed) -> None:
        hard, soft = -2 * place - 1, -2 * place - 2
        wanted = set(instance.ranks(*WANTED))
        root = _root(instance)
        for op in instance.waiting_ops:
            rank = op.global_rank
            self._edges[rank].update(
                ()
                if not wanted
                else {soft}
                if observed.is_gone(rank) or (op.op == Op.SEND and not observed.event.tells_ends)
                else _nodes(op, root, hard, soft)
            )
        if not wanted:
            return
        is_from_root = instance.first_op.op in _FROM_ROOT and root >= 0
        self._edges[hard].update(wanted & {root} if is_from_root else wanted)
        self._edges[soft].update(wanted)
        for rank in wanted:
            self._edges.setdefault(rank, set())

    def _resolve(self, component: set[int]) -> list[Origin]:
        ranks = {node for node in component if node >= 0}
        if not ranks:
            return []  # a broadcast whose root has come and gone
        if len(ranks) == 1:
            return [self._origin(ranks, is_certain=not self._is_only_softly_wanted(ranks))]
        hard = {
            node: {n for n in self._edges[node] if n in component and (n >= 0 or n % 2)}
            for node in component
            if node >= 0 or node % 2
        }
        cycles = [part for part in _components(hard) if sum(node >= 0 for node in part) > 1]
        if cycles:
            return [self._cycle(part, hard) for part in cycles]
        targets = set().union(*(nexts for node, nexts in hard.items() if node < 0))
        leaves = {rank for rank in targets & ranks if not hard[rank]}
        if leaves:
            return [self._origin({rank}, is_certain=False) for rank in sorted(leaves)]
        return [self._cycle(component, self._edges, is_certain=False)]

    def _is_only_softly_wanted(self, ranks: set[int]) -> bool:
        wanting = [node for node in self._used if ranks & self._edges[node]]
        return bool(wanting) and not any(node % 2 for node in wanting)

    def _origin(self, ranks: set[int], *, is_certain: bool = True) -> Origin:
        return Origin(tuple(sorted(ranks)), self._victims(ranks), is_certain=is_certain)

    def _cycle(self, component: set[int], edges: Graph, *, is_certain: bool = True) -> Origin:
        instances = {(-node - 1) // 2 for node in component if node < 0}
        if all(self._instances[place].key.is_p2p for place in instances):
            path = _all_edges(component, edges)
        else:
            path = _shortest_cycle(component, edges)
        links = tuple(
            CycleEdge(waiter, waited_for, self._instances[(-node - 1) // 2])
            for waiter, node, waited_for in path
        )
        ranks = {link.waiter for link in links}
        return Origin(tuple(sorted(ranks)), self._victims(ranks), links, is_certain)

    def _victims(self, ranks: set[int]) -> tuple[int, ...]:
        before = frozenset(n for rank in ranks for n in self._backwards.get(rank, ()))
        known = self._waiting.get(before)
        if known is None:  # ranks that are absent from the same ops have the same victims
            found = _reachable(set(before), self._backwards)
            known = self._waiting[before] = tuple(sorted(n for n in found if n >= 0))
        return known if ranks.isdisjoint(known) else tuple(n for n in known if n not in ranks)


def _nodes(op: InFlightOp, root: int, hard: int, soft: int) -> set[int]:
    """The nodes of its instance that a member in flight waits through."""
    is_root = op.global_rank == root
    if op.is_queued or (op.op in _FROM_ROOT and is_root):
        return {soft}
    if op.op in _FROM_ROOT:
        return {hard, soft}
    if op.op in _TO_ROOT and root >= 0 and not is_root:
        return {soft}
    return {hard}


def _root(instance: Instance) -> int:
    """Global rank of the root of a rooted collective, -1 for others or if unknown."""
    op = instance.first_op
    if op.op not in _FROM_ROOT | _TO_ROOT or not 0 <= op.peer < instance.communicator.comm_size:
        return -1
    return instance.communicator.members[op.peer]


def _reachable(starts: set[int], edges: Graph) -> set[int]:
    seen = set(starts)
    stack = list(starts)
    while stack:
        for following in edges.get(stack.pop(), ()):
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return seen


def _components(edges: Graph) -> list[set[int]]:
    """Strongly connected components (Tarjan, without recursion), sinks first."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    found: list[set[int]] = []
    for first in sorted(edges):
        work = [] if first in index else [(first, iter(sorted(edges[first])))]
        while work:
            node, nexts = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            for following in nexts:
                if following not in index:
                    work.append((following, iter(sorted(edges.get(following, ())))))
                    break
                if following in is_open:
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = {open_nodes.pop()}
                    while node not in component:
                        component.add(open_nodes.pop())
                    is_open -= component
                    found.append(component)
    return found


def _all_edges(component: set[int], edges: Graph) -> list[tuple[int, int, int]]:
    """(waiter, instance node, waited for) of every edge between the ranks: of sends and receives
    each has one, and a circle of neighbours is a circle of all of them."""
    return [
        (waiter, node, waited_for)
        for waiter in sorted(node for node in component if node >= 0)
        for node in sorted(edges.get(waiter, set()) & component, reverse=True)
        for waited_for in sorted(edges.get(node, set()) & component)
    ]


def _links(component: set[int], edges: Graph) -> Iterator[tuple[int, int, int]]:
    """(waiter, instance node, waited for) of all pairs, the lowest first."""
    for waiter in sorted(node for node in component if node >= 0):
        for node in sorted(edges.get(waiter, set()) & component):
            for waited_for in sorted(edges[node] & component - {waiter}):
                yield waiter, node, waited_for


def _shortest_cycle(component: set[int], edges: Graph) -> list[tuple[int, int, int]]:
    """(waiter, instance node, waited for) around a circle of two ranks, where there is one, else
    around a shortest one through the lowest rank."""
    start = min(node for node in component if node >= 0)
    for waiter, node, waited_for in _links(component, edges):
        if back := [n for n in edges[waited_for] if n in component and waiter in edges[n]]:
            return [(waiter, node, waited_for), (waited_for, min(back), waiter)]
    before: dict[int, int] = {}
    queue = [start]
    for node in queue:
        for following in sorted(edges.get(node, ())):
            if following in component and following not in before:
                before[following] = node
                queue.append(following)
    path = [start]
    while len(path) == 1 or path[-1] != start:
        path.append(before[path[-1]])
    path.reverse()
    return list(zip(path[:-2:2], path[1:-1:2], path[2::2], strict=True))
