"""What the time of an exposed op goes into, and what to look at first."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from comminsight.analysis.alpha_beta import AlphaBeta
from comminsight.analysis.exposed import ExposedOp
from comminsight.diagnosis import codes_exposed as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.model.exposed import Bound, OpExposure, OwnerDoubt
from comminsight.model.ops import Op
from comminsight.model.verdict import Message

STARTUP_RATIO = 0.5  # of the time of a call: startup is most of it
MANY_CALLS = 20  # in a step
LATE_RATIO = 0.3  # of the exposed time: whoever enters late comes before the op
ADVICE = {
    Op.ALL_REDUCE: codes.ADVICE_ALL_REDUCE, Op.ALL_GATHER: codes.ADVICE_ALL_GATHER,
    Op.REDUCE_SCATTER: codes.ADVICE_REDUCE_SCATTER, Op.ALL_TO_ALL: codes.ADVICE_ALL_TO_ALL,
}  # fmt: skip
OWNER_DOUBTS = {
    OwnerDoubt.ABSENT: codes.MISSING_OWNER_ABSENT,
    OwnerDoubt.UNMATCHED: codes.MISSING_OWNER_UNMATCHED,
    OwnerDoubt.CLOCKS: codes.MISSING_OWNER_CLOCKS,
    OwnerDoubt.DEPENDS: codes.MISSING_OWNER_DEPENDS,
    OwnerDoubt.UNTIMED: codes.MISSING_OWNER_UNTIMED,
}


def judged_op(one: ExposedOp, total_exposed_ns: int, *, is_compute_known: bool) -> OpExposure:
    """The op with its bound, by ``time = startup + bytes / rate`` over the sizes that it has, and
    with advice; the bound is unknown with fewer than three sizes (article 004, step 1)."""
    known = one.sizes[one.sizes > 0]
    median_bytes = round(float(np.median(known))) if len(known) else 0
    fit = one.fit()
    ratio = fit.latency_ratio(median_bytes) if fit is not None else None
    bound = _bound(fit, median_bytes, one.calls_per_step)
    hidden_ns = one.communication_ns - one.exposed_ns
    return OpExposure(
        op=op_name(one.op) if one.op else "unknown",
        comm_label=one.comm_label,
        n_calls=len(one.sizes),
        calls_per_step=one.calls_per_step,
        median_size_bytes=median_bytes,
        size_bytes=int(known.sum()),
        communication_ns=one.communication_ns,
        exposed_ns=one.exposed_ns,
        late_ns=one.late_ns,
        transfer_ns=one.transfer_ns,
        late_rank=one.late_rank,
        share_ratio=one.exposed_ns / total_exposed_ns if total_exposed_ns else 0.0,
        overlap_ratio=hidden_ns / max(1, one.communication_ns) if is_compute_known else None,
        bound=bound,
        startup_ratio=ratio,
        calls=one.exposed_calls,
        advice=tuple(_advice(one, bound, ratio)),
    )


def _bound(fit: AlphaBeta | None, size_bytes: int, calls_per_step: float) -> Bound:
    """Unknown unless both ends of the fit's intervals say the same."""
    if fit is None:
        return Bound.UNKNOWN
    least = _share(fit.latency_low_ns, size_bytes, fit.rate_low_gbs)
    most = _share(fit.latency_high_ns, size_bytes, fit.rate_high_gbs)
    if most < STARTUP_RATIO:
        return Bound.BANDWIDTH
    if least < STARTUP_RATIO:
        return Bound.UNKNOWN
    return Bound.FREQUENCY if calls_per_step >= MANY_CALLS else Bound.STARTUP


def _share(startup_ns: float, size_bytes: int, rate_gbs: float) -> float:
    transfer_ns = size_bytes / rate_gbs if rate_gbs > 0 else math.inf
    return startup_ns / max(startup_ns + transfer_ns, 1e-9)


def _advice(one: ExposedOp, bound: Bound, ratio: float | None) -> Iterator[Message]:
    if not one.exposed_ns:
        return
    late_ratio = one.late_ns / one.exposed_ns
    if one.late_rank >= 0 and late_ratio >= LATE_RATIO:
        yield message(codes.ADVICE_LATE, ratio=late_ratio, rank=one.late_rank)
    yield message(ADVICE.get(Op(one.op), codes.ADVICE_OTHER))
    if ratio is None or bound is Bound.UNKNOWN:
        return
    if bound is Bound.FREQUENCY:
        yield message(codes.ADVICE_FREQUENCY, n_calls=round(one.calls_per_step), ratio=ratio)
    elif bound is Bound.STARTUP:
        yield message(codes.ADVICE_STARTUP, ratio=ratio)
    else:
        yield message(codes.ADVICE_BANDWIDTH, ratio=1 - ratio)
