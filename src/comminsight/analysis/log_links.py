"""The map from ranks to ports and GPUs that NCCL's own lines give.

A channel over the network is told by both of its ends: the line of the one that sends, and the
line of the one that receives. Where each has its other, no rank lost a line, and the map holds
every port of the ranks that went on to write something else. Else it holds what was seen, and says
so.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.log_devices import Devices, Port, devices_of, net_of, writer_of
from comminsight.analysis.log_index import SameLogs, has_any, lines_in_order, lines_with
from comminsight.analysis.log_ranks import INIT_CODES, LogRanks, Process
from comminsight.model.counters import Link, LinkMap, RankGpu
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

# what follows the lines of the channels, so that these are all there
BEHIND_CHANNELS = frozenset(
    {LogCode.NCCL_CONNECTED, LogCode.NCCL_CHANNELS, LogCode.NCCL_INIT_COMPLETE,
     LogCode.NCCL_INIT_TIMINGS, LogCode.NCCL_COLL, LogCode.NCCL_DESTROY, LogCode.NCCL_ABORT,
     LogCode.NCCL_SERVICE_CLOSED}
)  # fmt: skip
DIRECTIONS = {"send": 1, "receive": -1}


@dataclass(slots=True)
class NetUse:
    """The networks of one process as (network, number), in order of their lines: ``sends`` of the
    channels that it sends by, ``receives`` of the others. ``is_closed``: it wrote something behind
    the last of them."""

    sends: dict[tuple[str, int], None] = field(default_factory=dict)
    receives: dict[tuple[str, int], None] = field(default_factory=dict)
    is_closed: bool = False

    @property
    def every(self) -> tuple[tuple[str, int], ...]:
        """All of both, each once."""
        return tuple(dict.fromkeys((*self.sends, *self.receives)))


@dataclass(frozen=True, slots=True, eq=False)
class NetChannels:
    """The channels over the network by process, and the devices that it printed. ``has_both_ends``:
    every channel is told by both of its ends, once more by one than by the other nowhere."""

    uses: Mapping[Process, NetUse]
    devices: Mapping[Process, Devices]
    has_both_ends: bool

    def ports(self, process: Process) -> tuple[Port, ...] | None:
        """The ports that the process uses; None where a channel names none that is known."""
        use, own = self.uses.get(process, NetUse()), self.devices.get(process, Devices())
        found = [own.ports(net, number) for net, number in use.every]
        return tuple(sorted({p for ports in found for p in ports})) if all(found) else None


def net_channels(logs: Sequence[JobLog]) -> NetChannels:
    """What the lines on channels tell, whoever wrote them."""
    return _net_channels(SameLogs(logs))


@functools.lru_cache(maxsize=2)
def _net_channels(key: SameLogs) -> NetChannels:
    uses: dict[Process, NetUse] = defaultdict(NetUse)
    ends: Counter[tuple[object, ...]] = Counter()
    is_clear = True
    hosts = _hosts_by_pid(key.logs)
    for log, event in lines_in_order(key.logs, BEHIND_CHANNELS | {LogCode.NCCL_CHANNEL}):
        use = uses[_mended(writer_of(log, event), hosts)]
        if event.code is not LogCode.NCCL_CHANNEL:
            use.is_closed = True
        elif (net := net_of(event)) is not None:
            direction = DIRECTIONS.get(str(event.values.get("direction", "")), 0)
            is_clear &= direction != 0 and event.n_repeated == 1 and not event.is_cut
            ends[_channel(event)] += direction
            (use.sends if direction > 0 else use.receives)[net] = None
            use.is_closed = False
    return NetChannels(uses, devices_of(key.logs), is_clear and not any(ends.values()))


def _hosts_by_pid(logs: Sequence[JobLog]) -> Mapping[int, set[str]]:
    """The hosts of the processes that made a communicator."""
    found: dict[int, set[str]] = defaultdict(set)
    for log, event in lines_with(logs, *INIT_CODES):
        host, pid = writer_of(log, event)
        found[pid].add(host)
    return found


def _mended(process: Process, hosts: Mapping[int, set[str]]) -> Process:
    """The process, where what the program itself had printed stands before the name of its host."""
    host, pid = process
    known = hosts.get(pid, set())
    inside = [one for one in known if host.endswith(one)]
    return (inside[0], pid) if host not in known and len(inside) == 1 else process


def _channel(event: LogEvent) -> tuple[object, ...]:
    return tuple(event.values.get(name) for name in ("channel", "from_rank", "to_rank"))


def log_links(logs: Sequence[JobLog], ranks: LogRanks) -> LinkMap | None:
    """The map of the job; None where no line tells of a channel over the network."""
    if not has_any(logs, (LogCode.NCCL_CHANNEL,)):
        return None
    channels = net_channels(logs)
    if not any(use.every for use in channels.uses.values()):
        return None
    processes = {rank: min(own) for rank, own in ranks.claims.items() if len(own) == 1}
    whole = _whole_ranks(logs, channels, processes)
    links = [
        Link(global_rank=rank, host=process[0], device=device, port=port)
        for rank, process in sorted(processes.items())
        for device, port in _known_ports(channels, process)
    ]
    return LinkMap(
        links=tuple(links),
        gpus=tuple(_gpus(logs, processes)),
        whole_ranks=whole,
        whole_hosts=_whole_hosts(whole, processes, ranks.world_size),
    )


def _known_ports(channels: NetChannels, process: Process) -> list[Port]:
    use, own = channels.uses.get(process, NetUse()), channels.devices.get(process, Devices())
    return sorted({port for net, number in use.every for port in own.ports(net, number)})


def _whole_ranks(
    logs: Sequence[JobLog], channels: NetChannels, processes: Mapping[int, Process]
) -> frozenset[int]:
    """The ranks of which all lines on channels are there, and every port is known."""
    known = set(processes.values())
    is_every_writer_known = all(p in known for p, use in channels.uses.items() if use.every)
    if not channels.has_both_ends or not is_every_writer_known:
        return frozenset()
    if any(is_bounded(log) for log in logs) or _has_collnet(logs):
        return frozenset()
    uses = channels.uses
    joined = {p[0] for p, use in uses.items() if use.sends} & {  # no host stands outside of a ring
        p[0] for p, use in uses.items() if use.receives
    }
    return frozenset(
        rank
        for rank, process in processes.items()
        if process[0] in joined
        and uses.get(process, NetUse()).is_closed
        and channels.ports(process) is not None
    )


def _has_collnet(logs: Sequence[JobLog]) -> bool:
    """True where switches may reduce: their channels have lines of another form."""
    told = (event.values for _, event in lines_with(logs, LogCode.NCCL_ENV))
    return any(one.get("name") == "NCCL_COLLNET_ENABLE" and one.get("value") != "0" for one in told)


def is_bounded(log: JobLog) -> bool:
    """True where lines of the log are not among its events, or were too long to be read."""
    lost = log.tally.n_truncated + log.tally.n_refused
    return lost > 0 or log.tally.n_events > len(log.events)


def _whole_hosts(
    whole: frozenset[int], processes: Mapping[int, Process], world_size: int
) -> frozenset[str]:
    """The hosts all of whose ranks are whole; none where nobody knows where some rank runs."""
    if not world_size or set(range(world_size)) != processes.keys():
        return frozenset()
    partial = {processes[rank][0] for rank in processes.keys() - whole}
    return frozenset({host for host, _ in processes.values()} - partial)


def _gpus(logs: Sequence[JobLog], processes: Mapping[int, Process]) -> list[RankGpu]:
    """By the number that the driver's tools have for the GPU, where the line tells it."""
    rank_of = {process: rank for rank, process in processes.items()}
    found: dict[int, set[RankGpu]] = defaultdict(set)
    for log, event in lines_with(logs, *INIT_CODES):
        process, number = writer_of(log, event), event.values.get("nvml_device")
        if process in rank_of and isinstance(number, int) and number >= 0:
            rank = rank_of[process]
            found[rank].add(RankGpu(global_rank=rank, host=process[0], device=f"gpu{number}"))
    return [gpu for _, gpus in sorted(found.items()) if len(gpus) == 1 for gpu in gpus]
