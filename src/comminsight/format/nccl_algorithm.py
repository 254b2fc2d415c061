"""Which algorithm NCCL says that it took: from its tuning lines alone."""

from __future__ import annotations

import re

from comminsight.format.log_nccl import body
from comminsight.format.log_pattern import AbsurdNumberError
from comminsight.model.bench import UNCONFIRMED, Observed
from comminsight.model.log_event import LogCode

PREFIX = "NCCL INFO "
SOURCE = "nccl_tuning_line"
CHANNELS = re.compile(r"channel\{Lo\.\.Hi\}=\{(\d{1,5})\.\.(\d{1,5})\}", re.ASCII)
# older releases print their numbers
ALGORITHM_OF_NUMBER = dict(
    enumerate(("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"))
)
PROTOCOL_OF_NUMBER = dict(enumerate(("LL", "LL128", "SIMPLE")))


def observed(log: str) -> tuple[Observed, ...] | str:
    """Each algorithm told, once and in order; ``unconfirmed`` where no line tells one.

    An echo of NCCL_ALGO and the rings and trees of the topology search are no evidence.
    """
    lines = (line.partition(PREFIX)[2] for line in log.splitlines() if "Bytes -> " in line)
    found = {one for line in lines if (one := _told(line)) is not None}
    return tuple(sorted(found, key=lambda one: (one.op, one.algo, one.proto, one.channels))) or (
        UNCONFIRMED
    )


def _told(line: str) -> Observed | None:
    try:
        read = body(line, "INFO")
    except AbsurdNumberError:
        return None
    if read is None or read[0] is not LogCode.NCCL_TUNING:
        return None
    values = {key: str(value) for key, value in read[1].items()}
    channels = CHANNELS.search(line)
    return Observed(
        op=values.get("op", ""),
        algo=_named(values["algo"], ALGORITHM_OF_NUMBER),
        proto=_named(values.get("proto", ""), PROTOCOL_OF_NUMBER),
        channels=f"{channels[1]}-{channels[2]}" if channels else _first_of(values),
        source=SOURCE,
    )


def _first_of(values: dict[str, str]) -> str:
    """The channels of a kernel that takes the first so many; "" where they are not told."""
    n_channels = int(values.get("n_channels", "0"))
    return f"0-{n_channels - 1}" if n_channels else ""


def _named(said: str, names: dict[int, str]) -> str:
    return names.get(int(said), said) if said.isdecimal() else said.upper()
