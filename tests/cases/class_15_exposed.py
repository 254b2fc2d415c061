"""Class 15: communication that compute could hide, and does not."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from comminsight.model.activity import Activity
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.host_facts import HostFacts, PortState
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from tests.builders.activities import comm, compute, in_steps, on_ranks
from tests.cases.field_case import Expected, FieldCase, Scene

MB = 1 << 20


def job(n_ranks: int, step: list[Activity], every_us: float, n_steps: int = 4) -> JobEvidence:
    return JobEvidence(
        world_size=n_ranks, activities=on_ranks(range(n_ranks), in_steps(step, n_steps, every_us))
    )


def late_prefetch(
    folder: Path, *, n_ranks: int, layers: int, gather_us: float, compute_us: float
) -> Scene:
    """Each layer's parameters are gathered when the layer before has computed. In the twin the
    gather of the next layer runs beside it."""
    period = gather_us + compute_us
    fault = [
        one
        for k in range(layers)
        for one in (
            comm(0, Op.ALL_GATHER, k * period, gather_us, size_bytes=8 * MB),
            compute(0, k * period + gather_us, compute_us),
        )
    ]
    twin = [compute(0, k * compute_us, compute_us) for k in range(layers)]
    twin += [
        comm(0, Op.ALL_GATHER, k * compute_us + 0.1 * compute_us, min(gather_us, 0.8 * compute_us))
        for k in range(layers)
    ]
    end_us = layers * period + 1
    return Scene(
        job(n_ranks, fault, end_us),
        Expected(
            (Cause.EXPOSED_COMM,), None, (Cause.NO_OVERLAP_BY_DEPENDENCY,),
            ("evidence.follows", "evidence.exposed_class", "action.prefetch"),
        ),
        job(n_ranks, twin, end_us),
    )  # fmt: skip


def two_links_by_turns(
    folder: Path, *, n_ranks: int, n: int, outer_us: float, inner_us: float, is_one_stream: bool
) -> Scene:
    """Collectives of two groups on different links, never two at once. In the twin some run beside
    each other: nothing orders them."""
    period = outer_us + inner_us + 30
    fault, twin = [compute(0, 0, 300)], [compute(0, 0, 300)]
    for k in range(n):
        begin = 300 + k * period
        outer = {"comm_label": "outer", "link": "network", "stream": 1}
        inner = {"comm_label": "inner", "link": "nvlink", "stream": 1 if is_one_stream else 2}
        first = comm(0, Op.REDUCE_SCATTER, begin, inner_us, **inner)
        fault += [first, comm(0, Op.ALL_REDUCE, begin + inner_us, outer_us, **outer)]
        beside = 0.4 * inner_us if k % 3 == 1 else inner_us
        twin += [first, comm(0, Op.ALL_REDUCE, begin + beside, outer_us, **outer)]
    every_us = 300 + n * period + 100
    told = ("evidence.one_stream",) if is_one_stream else ("evidence.follows",)
    also = () if is_one_stream else (Cause.NO_OVERLAP_BY_DEPENDENCY,)
    return Scene(
        job(n_ranks, fault, every_us),
        Expected((Cause.EXPOSED_COMM,), None, also, told),
        job(n_ranks, twin, every_us),
        Expected((Cause.EXPOSED_COMM,)),
    )


def small_buckets(
    folder: Path, *, n_ranks: int, n_ops: int, size_bytes: int, knee_bytes: int
) -> Scene:
    """Many small all-reduces behind a backward pass. In the twin nobody has measured which sizes
    are small on this link."""
    each_us = 400.0
    step = [compute(0, 0, n_ops * 500)]
    step += [comm(0, Op.ALL_REDUCE, k * 500, each_us, size_bytes=size_bytes) for k in range(n_ops)]
    rows = tuple(
        BandwidthRow(op=Op.ALL_REDUCE, size_bytes=size, busbw_gbs=100 * size / (size + knee_bytes))
        for size in (knee_bytes // 64, knee_bytes // 8, knee_bytes, 8 * knee_bytes, 64 * knee_bytes)
    )
    known = job(n_ranks, step, n_ops * 500.0)
    with_rows = JobEvidence(world_size=n_ranks, activities=known.activities, bandwidth=rows)
    return Scene(
        with_rows,
        Expected((Cause.SMALL_MESSAGES,), None, told=("action.larger_buckets",)),
        known,
        Expected(told=("missing.knee",)),
    )


def bytes_at_the_end(folder: Path, *, n_ranks: int, n_ops: int, backward_us: float) -> Scene:
    """The buckets fill only when the backward pass ends. In the twin they fill as it goes on."""

    def step(first: float, width: float) -> list[Activity]:
        own = [compute(0, 0, backward_us, phase="backward")]
        return own + [
            comm(
                0,
                Op.REDUCE_SCATTER,
                first + width * k / n_ops,
                0.5 * backward_us / n_ops,
                size_bytes=MB,
            )
            for k in range(n_ops)
        ]

    fault = step(0.92 * backward_us, 0.9 * backward_us)
    twin = step(0.05 * backward_us, 0.85 * backward_us)
    return Scene(
        job(n_ranks, fault, 3 * backward_us),
        Expected(
            (Cause.EXPOSED_COMM,), None, told=("evidence.late_bytes", "action.earlier_buckets")
        ),
        job(n_ranks, twin, 3 * backward_us),
    )


def nodes_no_faster(
    folder: Path, *, n_ranks: int, network: str, rate_gbs: float, busbw_gbs: float
) -> Scene:
    """Many nodes are no faster than one: over sockets beside fast ports, or at the ceiling of the
    ports with communication that nothing hides. In the twin nobody looked at ports or traces."""
    line = LogEvent(
        code=LogCode.NCCL_NETWORK, file="0.log", line=7, text=f"NCCL INFO Using network {network}",
        values={"network": network},
    )  # fmt: skip
    logs = (JobLog(file="0.log", events=(line,), rank=0),)
    hosts = ("node-a", "node-b")
    rows = (BandwidthRow(op=Op.ALL_REDUCE, size_bytes=256 * MB, busbw_gbs=busbw_gbs, hosts=hosts),)
    ports = tuple(
        PortState(host=host, device="mlx5_0", state="active", rate_gbs=rate_gbs) for host in hosts
    )
    step = [compute(0, 0, 10_000), comm(0, Op.ALL_REDUCE, 10_000, 90_000, size_bytes=256 * MB)]
    known = job(n_ranks, step, 100_000.0, n_steps=6)
    is_socket = network == "Socket"
    causes = (Cause.SLOW_LINK,) if is_socket else (Cause.EXPOSED_COMM,)
    return Scene(
        replace(known, logs=logs, bandwidth=rows, hosts=HostFacts(ports=ports)),
        Expected(causes, None, () if is_socket else (Cause.NO_OVERLAP_BY_DEPENDENCY,)),
        JobEvidence(world_size=n_ranks, logs=logs),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        127,
        "parameters gathered when the layer before has ended",
        late_prefetch,
        tuple(
            {"n_ranks": n, "layers": k, "gather_us": g, "compute_us": c}
            for n, k, g, c in ((2, 6, 4000, 10_000), (8, 24, 900, 1500), (4, 12, 3000, 2000))
        ),
    ),
    FieldCase(
        128,
        "two links by turns",
        two_links_by_turns,
        tuple(
            {"n_ranks": n, "n": k, "outer_us": o, "inner_us": i, "is_one_stream": False}
            for n, k, o, i in ((8, 6, 2000, 800), (4, 24, 500, 700), (16, 12, 12_000, 3000))
        ),
    ),
    FieldCase(
        129,
        "small buckets",
        small_buckets,
        tuple(
            {"n_ranks": n, "n_ops": k, "size_bytes": s, "knee_bytes": e}
            for n, k, s, e in ((8, 120, MB, 8 * MB), (4, 40, 64 << 10, MB), (16, 300, MB, 4 * MB))
        ),
    ),
    FieldCase(
        130,
        "bytes at the end of the backward pass",
        bytes_at_the_end,
        tuple(
            {"n_ranks": n, "n_ops": k, "backward_us": b}
            for n, k, b in ((4, 8, 80_000.0), (2, 3, 9_000.0), (8, 32, 400_000.0))
        ),
    ),
    FieldCase(
        131,
        "two links on one stream",
        two_links_by_turns,
        tuple(
            {"n_ranks": n, "n": k, "outer_us": o, "inner_us": i, "is_one_stream": True}
            for n, k, o, i in ((8, 6, 12_000, 23_000), (4, 32, 500, 700), (16, 10, 900, 300))
        ),
    ),
    FieldCase(
        132,
        "many nodes no faster than one",
        nodes_no_faster,
        tuple(
            {"n_ranks": n, "network": w, "rate_gbs": r, "busbw_gbs": b}
            for n, w, r, b in (
                (32, "Socket", 50.0, 1.1),
                (16, "Socket", 25.0, 4.0),
                (16, "IB", 50.0, 46.0),
            )
        ),
    ),
)
