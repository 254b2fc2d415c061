"""The ops of a run as matched calls: which may be compared, and when sends ended at the latest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.call_gates import DOUBTS, KNOWN, MatchedCalls
from comminsight.analysis.clock import stamp_error_ns
from comminsight.analysis.matching import IS_ROOTED, Instances
from comminsight.analysis.measures import RunSources
from comminsight.diagnosis.miscounts import miscounts_in
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import Op


def matched_records(run: RunSources, found: Instances, n_rows: Sequence[int]) -> MatchedCalls:
    """The rows of ``found`` on the run's clock; ``n_rows`` of each session stand one after the
    other.

    The end of a send that was only seen when somebody waited is brought forward to that of its
    receive: then the data was there.
    """
    ops = found.ops
    doubt = _doubts(run, found)
    error_ns = _errors_ns(run, found, n_rows)[found.instance]
    return MatchedCalls(
        rank=np.array(run.global_ranks, np.int64)[ops.rank],
        instance=found.instance,
        op=ops.op,
        start_ns=found.start_ns,
        end_ns=_ends_ns(found, doubt, error_ns),
        is_root=IS_ROOTED[ops.op] & (ops.peer == ops.comm_rank) & (ops.comm_rank >= 0),
        doubt=doubt,
        error_ns=error_ns,
    )


def _ends_ns(found: Instances, doubt: np.ndarray, error_ns: np.ndarray) -> np.ndarray:
    ops, at = found.ops, found.instance
    receives = np.flatnonzero((ops.op == Op.RECV) & found.is_p2p[at])
    received_ns = np.full(found.n_instances, np.iinfo(np.int64).max)
    received_ns[at[receives]] = found.end_ns[receives]
    is_late_seen = (ops.op == Op.SEND) & ops.is_end_bound & (doubt == KNOWN)
    is_late_seen &= received_ns[at] < found.end_ns - error_ns
    latest_ns = np.where(is_late_seen, received_ns[at] + error_ns, found.end_ns)
    ends_ns: np.ndarray = np.where(latest_ns > found.start_ns, latest_ns, found.end_ns)
    return ends_ns


def _doubts(run: RunSources, found: Instances) -> np.ndarray:
    """Why nothing can be said of a row's instance; where calls were not told of, numbers do not
    tell which ops are the same."""
    at = found.instance
    n_own = np.bincount(at, minlength=found.n_instances)
    untimed = np.bincount(at, weights=found.ops.is_untimed, minlength=found.n_instances) > 0
    lacks = (found.expected == 0) | (found.n_members < found.expected)
    doubled = found.is_mismatched | (n_own != found.n_members)
    miscounted = np.array(sorted(miscounts_in(run.trace)), np.int64)
    doubled |= np.bincount(
        at, weights=np.isin(found.ops.comm_id, miscounted), minlength=found.n_instances
    ).astype(bool)
    doubt = np.full(len(at), KNOWN)
    for flag, why in (
        (~found.is_evidence, OwnerDoubt.CLOCKS), (untimed, OwnerDoubt.UNTIMED),
        (doubled, OwnerDoubt.UNMATCHED), (lacks, OwnerDoubt.ABSENT),
    ):  # fmt: skip
        doubt[flag[at]] = DOUBTS.index(why)
    return doubt


def _errors_ns(run: RunSources, found: Instances, n_rows: Sequence[int]) -> np.ndarray:
    """How far the clocks of each instance's members may be apart, ``(n_instances,)``."""
    boots = [rank.session.boot_id for rank in run.trace.ranks]
    number = {boot: n for n, boot in enumerate(dict.fromkeys(boots))}
    boot = np.repeat([number[one] for one in boots], n_rows)
    low = np.full(found.n_instances, len(boots))
    high = np.full(found.n_instances, -1)
    np.minimum.at(low, found.instance, boot)
    np.maximum.at(high, found.instance, boot)
    return np.where(low == high, stamp_error_ns(run.trace.ranks), widest_error_ns(run))


def widest_error_ns(run: RunSources) -> int:
    """How far the clocks of any two ranks may be apart: those of two nodes each to the first."""
    n_boots = len({rank.session.boot_id for rank in run.trace.ranks})
    return run.clock_error_ns * (2 if n_boots > 1 else 1)
