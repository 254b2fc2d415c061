"""Which network card each process sends by, from NCCL's lines on its channels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from comminsight.analysis.log_devices import Devices
from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_links import NetChannels, is_bounded, net_channels
from comminsight.analysis.log_ranks import LogRanks, Process, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode

CardUse = dict[str, dict[str, set[int]]]  # host -> card -> ranks that use it and no other
CHOICE = "NCCL_IB_HCA"


def sole_users(logs: Sequence[JobLog], ranks: LogRanks) -> CardUse:
    """By host and card, the ranks that send by this card alone. Cards have the names that the
    process listed; their numbers count only on a host where no process listed any, and none was
    given other cards than the rest."""
    channels = net_channels(logs)
    unnamed = _unnamed_hosts(logs, channels)
    found: CardUse = defaultdict(lambda: defaultdict(set))
    for process, use in channels.uses.items():
        rank = ranks.by_process.get(process, -1)
        cards = _cards(channels, process, is_unnamed=process[0] in unnamed) if use.sends else None
        if rank >= 0 and cards is not None and len(cards) == 1:
            found[process[0]][cards.pop()].add(rank)
    return {host: dict(own) for host, own in found.items()}


def are_lines_whole(logs: Sequence[JobLog], ranks: Sequence[int], of: LogRanks) -> bool:
    """True where nothing says that lines on the channels of ``ranks`` were lost: a rank that lost
    some seems to use fewer cards than it does."""
    channels = net_channels(logs)
    own = {process for rank in ranks for process in of.claims.get(rank, ())}
    is_closed = all(
        process in channels.uses and channels.uses[process].is_closed for process in own
    )
    return channels.has_both_ends and is_closed and not any(map(is_bounded, logs))


def shared_cards(use: CardUse) -> list[tuple[str, str, tuple[int, ...]]]:
    """(host, card, ranks) of each card that several ranks use, and no other."""
    return [
        (host, card, tuple(sorted(users)))
        for host, cards in sorted(use.items())
        for card, users in sorted(cards.items())
        if len(users) > 1
    ]


def _cards(channels: NetChannels, process: Process, *, is_unnamed: bool) -> set[str] | None:
    """The names of the cards that the process sends by; None where one has none."""
    own = channels.devices.get(process, Devices())
    found: set[str] = set()
    for net, number in channels.uses[process].sends:
        ports = own.ports(net, number)
        if not ports and not is_unnamed:
            return None
        found.update({device for device, _ in ports} or {f"NET/{net}/{number}"})
    return found


def _unnamed_hosts(logs: Sequence[JobLog], channels: NetChannels) -> set[str]:
    """The hosts on which a number means the same card for every process, and no list names it."""
    listed = {host for (host, _), own in channels.devices.items() if own.ib or own.sockets}
    choices: Mapping[str, set[str]] = defaultdict(set)
    for log, event in lines_with(logs, LogCode.NCCL_ENV):
        if event.values.get("name") == CHOICE:
            choices[short_host(event.host or log.host)].add(str(event.values.get("value", "")))
    mixed = {host for host, values in choices.items() if len(values) > 1}
    return {host for host, _ in channels.uses} - listed - mixed
