"""Groups that a rank has, and in which it never called anything.

A dump lists all groups of its process, and counts the calls of each that has had any. Which group a
counter is of is told by entries: only where none is left over is a group without entries idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.format.flight_recorder import FlightDump
from comminsight.model.topology import Communicator
from comminsight.pipeline.flight_recorder_groups import groups_of


def never_used(dump: FlightDump, communicators: Sequence[Communicator]) -> Iterator[int]:
    """The ``comm_id`` of each group that has no number in this process; none from a dump without
    counters, or with one that may be of any group."""
    known = groups_of(dump)
    used = {pg_id for pg_id, told in dump.counters.items() if told.enqueued > 0}
    if not dump.counters or not used <= known.keys():
        return
    named = {group.name for group in known.values()}
    idle = {
        (group.name, group.members)
        for group in dump.groups
        if group.members and group.name not in named
    }
    if idle:
        yield from (one.comm_id for one in communicators if (one.name, one.members) in idle)
