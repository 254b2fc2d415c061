"""The parallel layout that a template presupposes: world size, and groups by role and size.

A rule on a role is met when a communicator of that role has been used and every one that was used
is of a permitted size. What is unknown (world, size) speaks for nothing. One of another size rules
the template out for good; one that has not been used yet may still come.
"""

from __future__ import annotations

import numpy as np

from comminsight.semantics.comm_table import ROLE_CODE, CommTable
from comminsight.semantics.template import ANY, GroupRule, Topology


def topology_faults(
    topology: Topology, rows: np.ndarray, comms: CommTable
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(rules that are broken for good, rules not met yet) by these ops, as labels."""
    broken = [] if _is_world_right(topology, comms.world_size) else [topology.world_label]
    open_rules = []
    used = np.unique(comms.clip(rows["comm_index"]))
    for rule in topology.groups:
        sizes = comms.sizes[used[comms.roles[used] == ROLE_CODE[rule.role]]]
        if _outside(rule, sizes).any():
            broken.append(rule.label)
        elif not len(sizes):
            open_rules.append(rule.label)
    return tuple(broken), tuple(open_rules)


def outside_table(topology: Topology, comms: CommTable) -> np.ndarray:
    """By ``comm_index``, whether a communicator breaks a rule; ``(n_comms,)`` bool."""
    table = np.zeros(len(comms.roles), np.bool_)
    for rule in topology.groups:
        table |= (comms.roles == ROLE_CODE[rule.role]) & _outside(rule, comms.sizes)
    return table


def _outside(rule: GroupRule, sizes: np.ndarray) -> np.ndarray:
    is_small = sizes < rule.min_size
    is_large = sizes > rule.max_size if rule.max_size != ANY else np.zeros(len(sizes), np.bool_)
    outside: np.ndarray = (sizes > 0) & (is_small | is_large)
    return outside


def _is_world_right(topology: Topology, world_size: int) -> bool:
    if world_size <= 0:
        return True
    is_small_enough = topology.max_world == ANY or world_size <= topology.max_world
    return world_size >= topology.min_world and is_small_enough
