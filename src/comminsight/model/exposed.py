"""Where the communication time of a job goes, as ``comminsight exposed`` tells it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message

EXPOSED_SCHEMA_VERSION = "1.0.0"


class ExposureSource(StrEnum):
    """Measured from a profiler's trace, or told from recorded ops alone: compute is not in these,
    so that overlap is not known."""

    TRACE = "trace"
    RECORDS = "records"


class Bound(StrEnum):
    """What most of the time of an op is: startup of few calls, startup of many, transfer."""

    STARTUP = "startup"
    FREQUENCY = "frequency"
    BANDWIDTH = "bandwidth"
    UNKNOWN = "unknown"


class ExposedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call with much exposed time, on the clock of its source."""

    global_rank: int
    step: int
    start_ns: int
    end_ns: int
    exposed_ns: int


class OpExposure(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one op on one communicator, over all ranks and steps.

    ``communication_ns`` and ``exposed_ns`` count each instant of a rank once within the op; two ops
    at one time have it both. ``share_ratio`` is of the exposed time of all ops. ``overlap_ratio``
    is None where compute is not known. ``calls`` are those with the most exposed time.
    """

    op: str
    comm_label: str
    n_calls: int
    calls_per_step: float
    median_size_bytes: int
    size_bytes: int
    communication_ns: int
    exposed_ns: int
    share_ratio: float
    overlap_ratio: float | None = None
    bound: Bound = Bound.UNKNOWN
    startup_ratio: float | None = None  # of the time of a call of the median size
    calls: tuple[ExposedCall, ...] = ()
    advice: tuple[Message, ...] = ()


class RankExposed(msgspec.Struct, frozen=True, kw_only=True):
    """One rank over all its steps. ``dark_ns`` is time in which nothing was seen of it."""

    global_rank: int
    n_steps: int
    span_ns: int
    compute_ns: int
    communication_ns: int
    overlapped_ns: int
    exposed_ns: int
    dark_ns: int
    overlap_ratio: float | None = None


class StepExposed(msgspec.Struct, frozen=True, kw_only=True):
    """One step: medians over the ``n_ranks`` ranks that have it."""

    step: int
    n_ranks: int
    span_ns: int
    communication_ns: int
    exposed_ns: int
    exposed_ratio: float


class ExposedReport(msgspec.Struct, frozen=True, kw_only=True):
    """Ops with the most exposed time first; ``ops[0]`` is the hotspot where anything is exposed.

    ``rank_imbalance_ratio`` is how much more exposed time the worst rank has than the median one,
    None until two ranks were seen. ``findings`` are what is odd, ``missing`` what is not known.
    """

    schema_version: str
    source: ExposureSource
    world_size: int
    ops: tuple[OpExposure, ...] = ()
    ranks: tuple[RankExposed, ...] = ()
    steps: tuple[StepExposed, ...] = ()
    rank_imbalance_ratio: float | None = None
    rank_imbalance_observed: bool = False
    findings: tuple[Message, ...] = ()
    missing: tuple[Message, ...] = ()
    unread: tuple[UnreadFile, ...] = ()
