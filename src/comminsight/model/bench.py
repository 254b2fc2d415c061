"""What a benchmark of collectives plans, what its record holds, and what two records compared say.

GB/s are 1e9 bytes per second, times are milliseconds, payloads are the bytes one rank puts in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from comminsight.model.bench_algorithms import (
    AUTO,
    COLLECTIVES,
    DEFAULT_ALGORITHMS,
    collectives_of,
)

BENCH_SCHEMA_VERSION = "1.1"
ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "float16": 2, "bfloat16": 2}
UNCONFIRMED = "unconfirmed"
Count = Annotated[int, msgspec.Meta(ge=1)]


class EvidenceLevel(StrEnum):
    """How much a record shows."""

    NONE = "none"  # nothing was measured
    PARTIAL = "partial"  # some measurements, then a failure
    MEASURED = "measured"  # all times, the algorithm not seen
    CONFIRMED = "confirmed"  # all times, and the library tells an algorithm


class Decision(StrEnum):
    """What may be done with a record."""

    USE_TIMES = "use_times"  # the times hold, no word about the algorithm
    USE_ALGORITHM = "use_algorithm"  # every algorithm seen is the one asked for, or Auto was
    NOT_HONOURED = "not_honoured"  # an algorithm other than the one asked for was seen
    DISCARD = "discard"  # failed: do not compare


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One matrix: every collective with every payload, in one launch for each algorithm and
    protocol."""

    n_ranks: Annotated[int, msgspec.Meta(ge=2)] = 2
    backend: str = "nccl"
    dtype: str = "float32"
    elements: tuple[Count, ...] = (256 * 1024, 1024 * 1024, 4 * 1024 * 1024)
    collectives: tuple[str, ...] = COLLECTIVES
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS["nccl"]
    protocols: tuple[str, ...] = (AUTO,)
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 5
    repeats: Count = 20
    label: str = "default"

    def cases(self) -> list[tuple[str, int]]:
        """Collective and elements per rank, in the order of one round; each number of elements
        is made up to a multiple of the ranks."""
        padded = dict.fromkeys(-(-n // self.n_ranks) * self.n_ranks for n in self.elements)
        return [(name, n) for n in padded for name in self.collectives]

    def launches(self) -> list[BenchPlan]:
        """One plan for each algorithm and protocol, each with those collectives alone for which the
        backend has the algorithm."""
        return [
            msgspec.structs.replace(
                self, algorithms=(algorithm,), protocols=(protocol,),
                collectives=collectives_of(self.backend, algorithm, self.collectives),
            )
            for algorithm in self.algorithms
            for protocol in self.protocols
        ]  # fmt: skip

    @property
    def name(self) -> str:
        """What is asked for, as a part of a file's name."""
        asked = (*self.algorithms, *(one for one in self.protocols if one != AUTO))
        return "-".join(asked)

    @property
    def workload_id(self) -> str:
        """The same for two records exactly when they measured the same things."""
        sizes = "-".join(map(str, self.elements))
        return (
            f"{self.backend}/{self.n_ranks}x{self.dtype}/{sizes}/{','.join(self.collectives)}"
            f"/{','.join(self.protocols)}"
        )


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm a library took, and what told it. ``op`` is the library's own word; with a
    stroke, ``allreduce/bcast``, an op that another one called."""

    op: str
    algo: str
    proto: str
    channels: str
    source: str


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One collective with one payload; ``max_rank_ms`` has the slowest rank of each repeat,
    ``waiting_repeats`` are those of which a rank stood in line for a core for half of the time or
    more (-1: not known).
    """

    collective: str
    payload_bytes_per_rank: int
    median_max_rank_ms: float
    p95_max_rank_ms: float
    effective_payload_gbps: float
    algbw_gbps: float
    busbw_gbps: float
    max_rank_ms: tuple[float, ...]
    rank_ms: tuple[tuple[float, ...], ...]  # [rank][repeat]
    waiting_repeats: int = -1

    @property
    def is_disturbed(self) -> bool:
        """Whether the median may be the scheduler's: so in half of the repeats or more."""
        return self.waiting_repeats > 0 and 2 * self.waiting_repeats >= len(self.max_rank_ms)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where a collective stops being latency-bound and where more bytes bring no more GB/s."""

    collective: str
    latency_knee_bytes: int | None  # None: not within the payloads measured
    plateau_from_bytes: int | None
    plateau_gbps: float | None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a record."""

    rows: tuple[BenchRow, ...] = ()
    shapes: tuple[Shape, ...] = ()


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """Files beside a record."""

    nccl_log: str = ""


class BenchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch with one algorithm measured, or how it failed."""

    schema_version: str = BENCH_SCHEMA_VERSION
    workload_id: str
    label: str
    backend: str
    dtype: str
    world_size: int
    warmup: int
    repeats: int
    algorithm_requested: str
    protocol_requested: str = AUTO
    algorithm_observed: tuple[Observed, ...] | str = UNCONFIRMED
    environment_profile: dict[str, str] = {}
    evidence_level: EvidenceLevel = EvidenceLevel.NONE
    decision: Decision = Decision.DISCARD
    failure: str = ""
    rs_ag_equals_all_reduce: bool | None = None
    artifacts: Artifacts = Artifacts()
    metrics: Metrics = Metrics()

    @property
    def name_requested(self) -> str:
        """Algorithm, and protocol where one was asked for."""
        asked = (self.algorithm_requested, self.protocol_requested)
        return asked[0] if asked[1] == AUTO else "-".join(asked)


class Change(StrEnum):
    """What a comparison says of one row."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no_change_shown"
    NO_VERDICT = "no_verdict"


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """One row in both records: ratio of medians (second over first), the ratio that a change has
    to exceed, and the test's p."""

    collective: str
    payload_bytes_per_rank: int
    ratio: float
    threshold_ratio: float
    p_value: float
    change: Change


class Lone(msgspec.Struct, frozen=True, kw_only=True):
    """A row that only one of the two records has."""

    collective: str
    payload_bytes_per_rank: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two records held against each other; ``differs`` names what keeps them from being judged."""

    schema_version: str = BENCH_SCHEMA_VERSION
    differs: tuple[str, ...] = ()
    rows: tuple[RowChange, ...] = ()
    dropped: tuple[Lone, ...] = ()

    @property
    def has_regression(self) -> bool:
        """Whether a row became slower."""
        return any(row.change is Change.SLOWER for row in self.rows)


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """The plan, and the records of its launches with their paths; none for a dry run."""

    schema_version: str = BENCH_SCHEMA_VERSION
    plan: BenchPlan
    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    records: tuple[BenchRecord, ...] = ()
