"""Exposed time by op, rank and step, with the calls that have the most of it.

What is hidden and exposed is that of ``analysis.exposure``: for each rank and step, and for each op
in it, exposed and overlapped add up to the union of its communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.alpha_beta import AlphaBeta, fit_alpha_beta
from comminsight.analysis.exposure import Exposure, RankStep
from comminsight.analysis.intervals import EMPTY, length_ns, united, without
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import ExposedCall, RankExposed, StepExposed

MAX_CALLS = 3  # shown of each op
OpClass = tuple[int, str]  # op, label of the communicator


@dataclass(frozen=True, slots=True)
class ExposedOp:
    """The calls of one class. ``sizes`` and ``durations_ns`` are of each call, ``exposed_calls``
    those with the most exposed time, the worst first. Of ``exposed_ns`` they waited ``late_ns`` for
    members that entered later, most of it for ``late_rank`` (-1 for nobody), and ``transfer_ns``
    were transfer; of the rest it is not known."""

    op: int
    comm_label: str
    sizes: np.ndarray
    durations_ns: np.ndarray
    calls_per_step: float
    communication_ns: int
    exposed_ns: int
    exposed_calls: tuple[ExposedCall, ...]
    late_ns: int = 0
    transfer_ns: int = 0
    late_rank: int = -1

    def fit(self) -> AlphaBeta | None:
        """Startup and rate by the fastest call of each size, which waited least; None with fewer
        than three sizes."""
        known = self.sizes > 0
        sizes, times = self.sizes[known], self.durations_ns[known]
        distinct = np.unique(sizes)
        return fit_alpha_beta(distinct, np.array([times[sizes == one].min() for one in distinct]))


def exposed_ops(activities: Iterable[Activity], found: Iterable[Exposure]) -> list[ExposedOp]:
    """One for each op and communicator, the most exposed time first."""
    compute = {(one.global_rank, one.step): one.hiding for one in found}
    classes: dict[OpClass, list[Activity]] = defaultdict(list)
    for one in activities:
        if one.kind is ActivityKind.COMMUNICATION and one.end_ns > one.start_ns > 0:
            classes[one.op, one.comm_label].append(one)
    made = [_op(key, own, compute) for key, own in classes.items()]
    return sorted(made, key=lambda one: (-one.exposed_ns, one.op, one.comm_label))


def _op(key: OpClass, own: Sequence[Activity], compute: Mapping[RankStep, np.ndarray]) -> ExposedOp:
    by_step: dict[RankStep, list[Activity]] = defaultdict(list)
    for one in own:
        by_step[one.global_rank, one.step].append(one)
    communication_ns = exposed_ns = 0
    for place, calls in by_step.items():
        covered = united(np.array([(one.start_ns, one.end_ns) for one in calls], np.int64))
        communication_ns += length_ns(covered)
        exposed_ns += length_ns(without(covered, compute.get(place, EMPTY)))
    return ExposedOp(
        op=key[0],
        comm_label=key[1],
        sizes=np.array([one.size_bytes for one in own], np.int64),
        durations_ns=np.array([one.end_ns - one.start_ns for one in own], np.int64),
        calls_per_step=float(np.median([len(calls) for calls in by_step.values()])),
        communication_ns=communication_ns,
        exposed_ns=exposed_ns,
        exposed_calls=_worst(own, compute),
    )


def _worst(
    own: Sequence[Activity], compute: Mapping[RankStep, np.ndarray]
) -> tuple[ExposedCall, ...]:
    """The longest calls have the most exposed time, if any: no other can have more."""
    longest = sorted(own, key=lambda one: one.start_ns - one.end_ns)
    calls: list[ExposedCall] = []
    for one in longest:
        if len(calls) >= MAX_CALLS and calls[-1].exposed_ns >= one.end_ns - one.start_ns:
            break
        row = np.array([[one.start_ns, one.end_ns]], np.int64)
        exposed_ns = length_ns(without(row, compute.get((one.global_rank, one.step), EMPTY)))
        calls.append(
            ExposedCall(
                global_rank=one.global_rank, step=one.step, start_ns=one.start_ns,
                end_ns=one.end_ns, exposed_ns=exposed_ns, stream=one.stream, phase=one.phase,
            )
        )  # fmt: skip
        calls.sort(key=lambda call: (-call.exposed_ns, call.start_ns, call.global_rank))
        del calls[MAX_CALLS:]
    return tuple(call for call in calls if call.exposed_ns)


def exposed_ranks(
    activities: Iterable[Activity], found: Iterable[Exposure], *, infers_compute: bool = False
) -> tuple[RankExposed, ...]:
    """One for each rank, ascending. Dark is what no activity of any kind covers, inside of steps;
    overlap is None without communication, and where nothing computes on the rank.

    With ``infers_compute`` what was not seen inside of steps is compute, and nothing is dark.
    """
    seen: dict[RankStep, list[tuple[int, int]]] = defaultdict(list)
    for one in activities:
        if one.end_ns > one.start_ns > 0:
            seen[one.global_rank, one.step].append((one.start_ns, one.end_ns))
    by_rank: dict[int, list[Exposure]] = defaultdict(list)
    for exposure in found:
        by_rank[exposure.global_rank].append(exposure)
    return tuple(
        _rank(rank, own, seen, infers_compute=infers_compute and own[-1].step >= 0)
        for rank, own in sorted(by_rank.items())
    )


def _rank(
    rank: int,
    own: Sequence[Exposure],
    seen: Mapping[RankStep, Sequence[tuple[int, int]]],
    *,
    infers_compute: bool,
) -> RankExposed:
    span_ns = sum(one.span_ns for one in own)
    covered_ns = sum(
        length_ns(united(np.array(seen[one.global_rank, one.step], np.int64))) for one in own
    )
    communication_ns = sum(one.communication_ns for one in own)
    overlapped_ns = sum(one.overlapped_ns for one in own)
    compute_ns = sum(length_ns(one.compute) for one in own)
    dark_ns = span_ns - covered_ns
    return RankExposed(
        global_rank=rank,
        n_steps=len(own),
        span_ns=span_ns,
        compute_ns=compute_ns + dark_ns * infers_compute,
        communication_ns=communication_ns,
        overlapped_ns=overlapped_ns,
        exposed_ns=communication_ns - overlapped_ns,
        dark_ns=dark_ns * (not infers_compute),
        is_compute_inferred=infers_compute,
        overlap_ratio=(
            overlapped_ns / communication_ns if communication_ns and len(own[0].hiding) else None
        ),
    )


def exposed_steps(found: Iterable[Exposure]) -> tuple[StepExposed, ...]:
    """One for each step, ascending."""
    by_step: dict[int, list[Exposure]] = defaultdict(list)
    for one in found:
        by_step[one.step].append(one)
    return tuple(_step(step, own) for step, own in sorted(by_step.items()))


def _step(step: int, own: Sequence[Exposure]) -> StepExposed:
    columns = [(one.span_ns, one.communication_ns, one.exposed_ns) for one in own]
    span_ns, communication_ns, exposed_ns = np.median(columns, axis=0)
    return StepExposed(
        step=step,
        n_ranks=len(own),
        span_ns=round(float(span_ns)),
        communication_ns=round(float(communication_ns)),
        exposed_ns=round(float(exposed_ns)),
        exposed_ratio=float(np.median([one.exposed_ns / max(1, one.span_ns) for one in own])),
    )
