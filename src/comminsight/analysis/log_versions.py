"""Versions of NCCL by the lines that print them, and whether what a job shows is like a fault of
one of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_ranks import LogRanks
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.topology import Communicator

NUMBERS = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?")
Version = tuple[int, int, int]
PRINTED = frozenset({LogCode.NCCL_VERSION, LogCode.TORCH_NCCL_ERROR})


@dataclass(frozen=True, slots=True)
class Printed:
    """A version as a process printed it."""

    rank: int
    version: Version
    event: LogEvent


def version_of(text: str) -> Version | None:
    """``2.27.3+cuda12.9`` as numbers; None for another text."""
    match = NUMBERS.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def version_text(version: Version) -> str:
    """The numbers as people write them."""
    return ".".join(map(str, version))


def printed_versions(logs: Sequence[JobLog], ranks: LogRanks) -> list[Printed]:
    """Every version that the library itself printed."""
    return [
        Printed(ranks.rank_of(log, event), version, event)
        for log, event in lines_with(logs, *PRINTED)
        if (version := version_of(str(event.values.get("version", "")))) is not None
    ]


def stated_versions(logs: Sequence[JobLog]) -> list[tuple[Version, LogEvent]]:
    """The versions that variables of the environment state."""
    return [
        (version, event)
        for event in events_with(logs, [LogCode.ENVIRONMENT])
        if event.values.get("name") == "NCCL_VERSION"
        and (version := version_of(str(event.values.get("value", "")))) is not None
    ]


def architectures(logs: Sequence[JobLog]) -> set[str]:
    """The processors of the hosts, as far as logs tell them."""
    return {
        str(event.values.get("architecture", ""))
        for event in events_with(logs, [LogCode.HOST_ARCHITECTURE])
    }


def is_one_behind(event: HangEvent, communicators: Sequence[Communicator]) -> bool:
    """True where all members of a communicator wait in one op but a single one, whose last op is
    the one before."""
    waiting: dict[tuple[int, int], set[int]] = defaultdict(set)
    for op in event.in_flight:
        waiting[op.comm_id, op.match_seq].add(op.global_rank)
    last = {
        (one.comm_id, one.global_rank): one.last_entered
        for one in event.progress
        if one.direction == 0
    }
    for communicator in communicators:
        for (comm_id, seq), ranks in waiting.items():
            absent = set(communicator.members) - ranks
            if comm_id == communicator.comm_id and len(absent) == 1 and len(ranks) > 1:
                return last.get((comm_id, absent.pop())) == seq - 1
    return False


def are_all_inside(event: HangEvent, communicators: Sequence[Communicator]) -> bool:
    """True where all members of a communicator wait in one op."""
    waiting: dict[tuple[int, int], set[int]] = defaultdict(set)
    for op in event.in_flight:
        waiting[op.comm_id, op.match_seq].add(op.global_rank)
    return any(
        ranks == set(communicator.members) and len(ranks) > 1
        for communicator in communicators
        for (comm_id, _), ranks in waiting.items()
        if comm_id == communicator.comm_id
    )
