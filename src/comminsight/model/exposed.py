"""Where the communication time of a job goes, as ``comminsight exposed`` tells it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.job_evidence import UnreadFile
from comminsight.model.verdict import Message

EXPOSED_SCHEMA_VERSION = "1.1.0"


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


class OwnerKind(StrEnum):
    """What exposed time goes into: waiting for a rank that entered later, moving data once all had
    entered, or nobody knows."""

    LATE = "late"
    TRANSFER = "transfer"
    UNKNOWN = "unknown"


class OwnerDoubt(StrEnum):
    """Why nobody knows: calls of other members are absent, or cannot be matched; clocks do not tell
    who was last; the op need not wait for others; only the call was seen and not when it ran."""

    ABSENT = "absent"
    UNMATCHED = "unmatched"
    CLOCKS = "clocks"
    DEPENDS = "depends"
    UNTIMED = "untimed"


class ExposedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call with much exposed time, on the clock of its source. ``late_ns`` of it were spent
    waiting for ``late_rank``, the one that entered last; 0 and -1 where nobody is known to have
    kept it waiting, ``doubt`` says why where that is not known. ``phase`` "" is unknown."""

    global_rank: int
    step: int
    start_ns: int
    end_ns: int
    exposed_ns: int
    stream: int = 0
    phase: str = ""
    late_rank: int = -1
    late_ns: int = 0
    doubt: OwnerDoubt | None = None


class OpExposure(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one op on one communicator, over all ranks and steps.

    ``communication_ns`` and ``exposed_ns`` count each instant of a rank once within the op; two ops
    at one time have it both. ``share_ratio`` is of the exposed time of all ops. ``overlap_ratio``
    is None where compute is not known. ``calls`` are those with the most exposed time.

    Of ``exposed_ns`` the calls waited ``late_ns`` for members that entered later, most of it for
    ``late_rank`` (-1: for nobody), and ``transfer_ns`` were transfer; of the rest it is not known.
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
    late_ns: int = 0
    transfer_ns: int = 0
    late_rank: int = -1
    overlap_ratio: float | None = None
    bound: Bound = Bound.UNKNOWN
    startup_ratio: float | None = None  # of the time of a call of the median size
    calls: tuple[ExposedCall, ...] = ()
    advice: tuple[Message, ...] = ()


class OwnerExposed(msgspec.Struct, frozen=True, kw_only=True):
    """Exposed time that one cause has; those of a report add up to the exposed time of all ranks.

    Of an instant at which several calls are exposed the one that ends last is asked. LATE:
    ``global_rank`` entered last, in ``phase`` of its own step; ``alone_ns`` of it only that rank
    was still awaited. ``passed_on_ratio`` of that rank's lateness, over all its steps, was made by
    others that had kept it waiting before; None where that is not known, as in traces.
    """

    kind: OwnerKind
    exposed_ns: int
    share_ratio: float
    n_calls: int
    global_rank: int = -1
    phase: str = ""
    alone_ns: int = 0
    passed_on_ratio: float | None = None
    doubt: OwnerDoubt | None = None


class PartExposed(msgspec.Struct, frozen=True, kw_only=True):
    """Exposed time of one role or phase; those of a report add up, as with owners. "" is unknown.
    A call belongs to the phase in which it began."""

    name: str
    exposed_ns: int
    share_ratio: float
    n_calls: int


class StreamExposed(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of one rank, each instant once: ``n_intervals`` are those left when calls that
    touch are put together."""

    global_rank: int
    stream: int
    n_intervals: int
    compute_ns: int
    communication_ns: int
    exposed_ns: int


class RankExposed(msgspec.Struct, frozen=True, kw_only=True):
    """One rank over all its steps. ``dark_ns`` is time in which nothing was seen of it.

    ``is_compute_inferred``: compute is what lies between communications, and was not seen itself;
    it hides nothing, and nothing is dark then.
    """

    global_rank: int
    n_steps: int
    span_ns: int
    compute_ns: int
    communication_ns: int
    overlapped_ns: int
    exposed_ns: int
    dark_ns: int
    overlap_ratio: float | None = None
    is_compute_inferred: bool = False


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
    None until two ranks were seen. ``clock_error_ns`` bounds how far the ranks' clocks are apart
    where owners are told, None where no clocks were compared. ``findings`` are what is odd,
    ``missing`` what is not known.
    """

    schema_version: str
    source: ExposureSource
    world_size: int
    ops: tuple[OpExposure, ...] = ()
    ranks: tuple[RankExposed, ...] = ()
    steps: tuple[StepExposed, ...] = ()
    owners: tuple[OwnerExposed, ...] = ()
    roles: tuple[PartExposed, ...] = ()
    phases: tuple[PartExposed, ...] = ()
    streams: tuple[StreamExposed, ...] = ()
    clock_error_ns: int | None = None
    rank_imbalance_ratio: float | None = None
    rank_imbalance_observed: bool = False
    findings: tuple[Message, ...] = ()
    missing: tuple[Message, ...] = ()
    unread: tuple[UnreadFile, ...] = ()
