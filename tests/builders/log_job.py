"""A line of a log with what it says, and the numbers that lines are made with; all made up."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogValue

HOSTS = ("amber-01", "birch-17", "cedar3.example")


@dataclass(frozen=True)
class Sample:
    """A line, the code of its event, and values and places that the event must have."""

    code: C
    line: str
    values: dict[str, LogValue] = field(default_factory=dict)
    where: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The numbers that the lines of one seed are made with."""

    host: str
    pid: int
    tid: int
    rank: int
    size: int
    device: int
    seq: int
    count: int
    comm: str
    hash: str
    bus: str
    peer: str
    port: int

    @property
    def at(self) -> dict[str, str | int]:
        return {"host": self.host, "pid": self.pid, "tid": self.tid}


def job(seed: int) -> Job:
    rng = random.Random(seed)
    size = rng.choice((2, 8, 64, 4096))
    return Job(
        host=rng.choice(HOSTS),
        pid=rng.randrange(2, 4_000_000),
        tid=rng.randrange(2, 4_000_000),
        rank=rng.randrange(size),
        size=size,
        device=rng.randrange(8),
        seq=rng.choice((0, 1, 77, 532_341)),
        count=rng.choice((1, 513, 25_000_000)),
        comm=f"{rng.randrange(1, 1 << 47):#x}",
        hash=f"{rng.randrange(1 << 63, 1 << 64):#x}",
        bus=f"{rng.randrange(1, 1 << 20):x}",
        peer=f"10.9.{rng.randrange(250)}.{rng.randrange(250)}",
        port=rng.randrange(1024, 65_536),
    )
