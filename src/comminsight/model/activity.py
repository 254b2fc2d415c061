"""What the devices of a rank did when: kernels and copies with their class, as rules see them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ActivityKind(StrEnum):
    """The class of a device activity; OTHER is what no list names, and never counts as compute."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    COPY = "copy"
    WAIT = "wait"  # a synchronisation that only stands in the trace
    OTHER = "other"


class Activity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One interval on one stream of a rank. ``end_ns`` 0: it had not ended."""

    global_rank: int
    kind: ActivityKind
    name: str
    start_ns: int
    end_ns: int
    stream: int = 0
    op: int = 0  # Op of a communication, 0 for others
    size_bytes: int = 0
    dtype: int = 0  # DType of a communication
    comm_label: str = ""
    link: str = ""  # nvlink, network; "" unknown
    step: int = -1
    phase: str = ""
    is_library: bool = True  # False for a hand-written communication kernel


class LaunchCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many kernels a rank launched in the window of its capture, and how many were seen."""

    global_rank: int
    n_launches: int
    n_kernels: int


class NumberedOps(msgspec.Struct, frozen=True, kw_only=True):
    """Which op numbers of one communicator a rank left records of, ascending; the numbers count its
    ops of all sizes from ``first`` on."""

    global_rank: int
    comm_label: str
    numbers: tuple[int, ...]
