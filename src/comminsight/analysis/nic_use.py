"""Which network card each process sends by, from NCCL's lines on its channels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

_NET = re.compile(r"NET/(\w{1,16})/(\d{1,4})")
_LISTED = re.compile(r"\[(\d{1,4})\](\w{1,32})(?::\d{1,4})?")

CardUse = dict[str, dict[str, set[int]]]  # host -> card -> ranks that use it and no other


def sole_users(logs: Sequence[JobLog], ranks: LogRanks) -> CardUse:
    """By host and card, the ranks that send by this card alone. A line counts for the process that
    wrote it where it sends; cards have the names that NCCL lists, else their numbers."""
    cards: dict[tuple[str, int], set[str]] = defaultdict(set)
    names = _card_names(logs)
    for log, event in lines_with(logs, LogCode.NCCL_CHANNEL):
        if event.values.get("direction") != "send":
            continue
        match = _NET.search(str(event.values.get("transport", "")))
        rank, host = ranks.rank_of(log, event), short_host(event.host or log.host)
        if match and rank >= 0 and host:
            cards[host, rank].add(names.get((host, int(match[2])), match[0]))
    found: CardUse = defaultdict(lambda: defaultdict(set))
    for (host, rank), used in cards.items():
        if len(used) == 1:
            found[host][next(iter(used))].add(rank)
    return {host: dict(own) for host, own in found.items()}


def shared_cards(use: CardUse) -> list[tuple[str, str, tuple[int, ...]]]:
    """(host, card, ranks) of each card that several ranks use, and no other."""
    return [
        (host, card, tuple(sorted(users)))
        for host, cards in sorted(use.items())
        for card, users in sorted(cards.items())
        if len(users) > 1
    ]


def _card_names(logs: Sequence[JobLog]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for log, event in lines_with(logs, LogCode.NCCL_IB_DEVICES):
        host = short_host(event.host or log.host)
        for number, name in _listed(event):
            found[host, number] = name
    return found


def _listed(event: LogEvent) -> list[tuple[int, str]]:
    listed = str(event.values.get("devices", ""))
    return [(int(number), name) for number, name in _LISTED.findall(listed)]
