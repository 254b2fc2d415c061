"""What the exposed time of each op goes into, and for whom its worst calls waited.

Within an op each instant of a rank counts once, for the call that ends last (see
``exposed_owners``), whether or not other ops run beside it: the parts are exact, and two ops that
are exposed at once have the time both.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from comminsight.analysis.call_gates import DOUBTS, KNOWN, CallGates
from comminsight.analysis.exposed import ExposedOp, OpClass
from comminsight.analysis.exposed_owners import below_ns, call_shares
from comminsight.analysis.exposure import Exposure, RankStep
from comminsight.analysis.intervals import without
from comminsight.model.activity import Activity
from comminsight.model.exposed import ExposedCall


def with_owners(
    ops: Iterable[ExposedOp],
    calls: Sequence[Activity],
    classes: Sequence[OpClass],
    gates: CallGates,
    found: Sequence[Exposure],
) -> list[ExposedOp]:
    """The ops with the parts of their exposed time; ``classes`` says of each call which op it is
    of."""
    rows = {_identity(one): row for row, one in enumerate(calls)}
    sets = {(one.global_rank, one.step): without(one.communication, one.hiding) for one in found}
    own: dict[OpClass, list[int]] = defaultdict(list)
    for row, key in enumerate(classes):
        own[key].append(row)
    made = []
    for one in ops:
        worst = [_with_owner(c, rows[_identity(c)], gates, sets) for c in one.exposed_calls]
        told = _parted(one, calls, np.array(own[one.op, one.comm_label]), gates, found)
        made.append(dataclasses.replace(told, exposed_calls=tuple(worst)))
    return made


def _parted(
    one: ExposedOp,
    calls: Sequence[Activity],
    rows: np.ndarray,
    gates: CallGates,
    found: Sequence[Exposure],
) -> ExposedOp:
    own = gates.take(rows)
    shares = call_shares([calls[row] for row in rows.tolist()], own, found)
    is_late = own.late_rank >= 0
    ranks, column = np.unique(own.late_rank[is_late], return_inverse=True)
    waits_ns = np.zeros(len(ranks), np.int64)
    np.add.at(waits_ns, column, shares.wait_ns[is_late])
    return dataclasses.replace(
        one,
        late_ns=int(waits_ns.sum()),
        transfer_ns=int(shares.move_ns.sum()),
        late_rank=int(ranks[waits_ns.argmax()]) if waits_ns.any() else -1,
    )


def _identity(one: Activity | ExposedCall) -> tuple[int, ...]:
    return one.global_rank, one.stream, one.start_ns, one.end_ns


def _with_owner(
    call: ExposedCall, row: int, gates: CallGates, sets: Mapping[RankStep, np.ndarray]
) -> ExposedCall:
    late_rank, doubt = int(gates.late_rank[row]), int(gates.doubt[row])
    if late_rank < 0:
        return replace(call, doubt=DOUBTS[doubt] if doubt != KNOWN else None)
    until_ns = min(max(int(gates.gate_ns[row]), call.start_ns), call.end_ns)
    edges = below_ns(sets[call.global_rank, call.step], np.array([call.start_ns, until_ns]))
    return replace(call, late_rank=late_rank, late_ns=int(edges[1] - edges[0]))
