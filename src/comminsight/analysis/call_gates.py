"""When each call could run, and who was awaited until then.

A call of an op in which all wait for all can run when its last member has entered; a member of a
broadcast or a scatter when the root has; a receiver when its sender has. Whether a root, a sender
or a member of a reduce waits for the others is up to the library: nobody is named for these. Nobody
is named either where the clocks do not tell who was last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.analysis.matching import op_table
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import Op

DOUBTS = tuple(OwnerDoubt)
KNOWN = -1
_WAITS_FOR_ALL = op_table((*SYNCHRONISING_OPS, Op.RECV))
_ROOT_WAITS = op_table((Op.REDUCE, Op.GATHER))
_WAITS_FOR_ROOT = op_table((Op.BROADCAST, Op.SCATTER))
_NEVER_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class MatchedCalls:
    """Calls with their instances; columns are ``(n_calls,)``, times on one clock.

    ``instance`` is a dense id. ``is_root`` is true for the root of a rooted op. ``doubt`` indexes
    ``DOUBTS`` where the instance says nothing, else ``KNOWN``. ``error_ns`` bounds how far the
    clocks of the instance's members are apart.
    """

    rank: np.ndarray
    instance: np.ndarray
    op: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    is_root: np.ndarray
    doubt: np.ndarray
    error_ns: np.ndarray


@dataclass(frozen=True, slots=True)
class CallGates:
    """Columns ``(n_calls,)``: until ``gate_ns`` a call waited, from ``alone_ns`` on for one rank
    alone: that is ``late_rank``, whose call is row ``late_row``. Both are -1 where nobody was
    awaited, and where it is not known who: then ``doubt`` indexes ``DOUBTS``, else it is ``KNOWN``.
    """

    gate_ns: np.ndarray
    alone_ns: np.ndarray
    late_rank: np.ndarray
    late_row: np.ndarray
    doubt: np.ndarray

    def take(self, rows: np.ndarray) -> CallGates:
        """The given rows; ``late_row`` still counts all of them."""
        return CallGates(*(getattr(self, name)[rows] for name in self.__slots__))


def call_gates(calls: MatchedCalls) -> CallGates:
    """The gates of all calls, on the clock of ``calls``."""
    last, runner_up_ns = _last_two(calls)
    root = _root_rows(calls)
    by_root = _WAITS_FOR_ROOT[calls.op] & ~calls.is_root & (root >= 0)
    by_all = _WAITS_FOR_ALL[calls.op] | (_ROOT_WAITS[calls.op] & calls.is_root)
    owner = np.where(by_root, root, last)
    gate_ns = np.maximum(calls.start_ns[owner], calls.start_ns)
    alone_ns = np.where(by_root, calls.start_ns, np.maximum(runner_up_ns, calls.start_ns))
    is_waiting = gate_ns > calls.start_ns
    is_close = is_waiting & (gate_ns - np.where(by_root, calls.start_ns, runner_up_ns)
                             <= calls.error_ns)  # fmt: skip
    doubt = np.full(len(owner), KNOWN)
    doubt[is_close] = DOUBTS.index(OwnerDoubt.CLOCKS)
    doubt[is_waiting & ~by_root & ~by_all] = DOUBTS.index(OwnerDoubt.DEPENDS)
    is_unknown = calls.doubt != KNOWN
    doubt[is_unknown] = calls.doubt[is_unknown]
    gate_ns[is_unknown] = calls.end_ns[is_unknown]
    is_named = (doubt == KNOWN) & is_waiting
    return CallGates(
        gate_ns=gate_ns,
        alone_ns=np.where(is_named, alone_ns, gate_ns),
        late_rank=np.where(is_named, calls.rank[owner], -1),
        late_row=np.where(is_named, owner, -1),
        doubt=doubt,
    )


def _last_two(calls: MatchedCalls) -> tuple[np.ndarray, np.ndarray]:
    """For each call, the row of its instance that started last and the start of the one before."""
    order = np.lexsort((calls.start_ns, calls.instance))
    instance = calls.instance[order]
    is_last = np.r_[instance[1:] != instance[:-1], True] if len(order) else np.zeros(0, bool)
    at = np.flatnonzero(is_last)
    n = int(calls.instance.max(initial=-1)) + 1
    last, before_ns = np.zeros(n, np.int64), np.full(n, _NEVER_NS)
    last[instance[at]] = order[at]
    has_other = at > 0
    has_other[has_other] = ~is_last[at[has_other] - 1]
    before_ns[instance[at[has_other]]] = calls.start_ns[order[at[has_other] - 1]]
    lone = before_ns == _NEVER_NS
    before_ns[lone] = calls.start_ns[last[lone]]
    return last[calls.instance], before_ns[calls.instance]


def _root_rows(calls: MatchedCalls) -> np.ndarray:
    """For each call, the row of its instance's root, -1 without one."""
    rows = np.full(int(calls.instance.max(initial=-1)) + 1, -1)
    roots = np.flatnonzero(calls.is_root)
    rows[calls.instance[roots]] = roots
    of_calls: np.ndarray = rows[calls.instance]
    return of_calls
