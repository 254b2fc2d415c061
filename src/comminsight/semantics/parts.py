"""Found steps that are parts of a longer one, told by the ops that they hold.

What a block holds is the kinds of its ops and how often each occurs, whatever their order; with
their exact sizes where data is reduced or gathered, without where tokens are handed around or where
a step is an iteration of a serving job: its sizes follow the batch. Blocks of several kinds in turn
are layers, microbatches, or the iterations of a small model and a large one.

One kind of block with another now and then is no such evidence: an evaluation, a checkpoint or a
log every few steps. Unless the gradients are reduced in every nth block only, or a block is a
forward pass: those of one model are all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.ops import CommRole, DType, Op
from comminsight.model.splitmix import splitmix64
from comminsight.model.step import StepSummary
from comminsight.semantics.comm_table import ROLES, CommTable
from comminsight.semantics.symbols import IS_OF_FIXED_SIZE, N_OPS, columns_of

LOOK_LIKE_PARTS = "steps_look_like_parts"  # why a template is not taken
MIN_ROUNDS = 4
MAX_PERIOD = 64  # blocks per step
UNKNOWN_PERIOD = 1  # parts of a step, but of no constant number
_MAX_BLOCKS = 1024
_MAX_UNLIKE = 0.1  # of the blocks may be unlike those a period before: a record was lost
_TIMES_ALIKE = 3.0  # as often as neighbours are
_SECOND_MODEL = 0.2  # of the iterations
_CONTROL_BYTES = 1024  # numbers up to it, gradients from it on
_REDUCES_WHOLE = np.isin(np.arange(256), (Op.ALL_REDUCE, Op.REDUCE))
_REDUCES = _REDUCES_WHOLE | (np.arange(256) == Op.REDUCE_SCATTER)
_IS_FLOAT = np.isin(np.arange(256), (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64))
_OUTSIDE_MODEL = np.isin(
    np.arange(len(ROLES)),
    [
        ROLES.index(role)
        for role in (CommRole.GLOBAL, CommRole.DP, CommRole.EDP, CommRole.DP_SHARD,
                     CommRole.DP_REPLICATE, CommRole.DIST_OPT)
    ],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocks:
    """The first found steps as stretches of committed ops; the arrays are one per block.

    ``first`` and ``last`` are positions in ``rows``; ``gap_ns`` and ``period_ns`` are those of the
    steps. Behind each block stands another.
    """

    rows: np.ndarray
    comms: CommTable
    first: np.ndarray
    last: np.ndarray
    gap_ns: np.ndarray
    period_ns: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Of each block, the sum over its ops (one value per op)."""
        return _sums(values, self.first[:-1], self.last[:-1] + 1)

    def gap_sums(self, values: np.ndarray) -> np.ndarray:
        """Of the gap behind each block, the sum over its ops."""
        return _sums(values, self.last[:-1] + 1, self.first[1:])

    @property
    def is_control(self) -> np.ndarray:
        """Of each op, whether it reduces a few numbers."""
        is_small: np.ndarray = self.rows["size_bytes"] <= _CONTROL_BYTES
        return is_small & _REDUCES_WHOLE.take(self.rows["op"])

    def kinds(self, *, has_sizes: bool) -> np.ndarray:
        """Of each op, a number (u8) of its kind; sums of them tell contents apart."""
        code = columns_of(self.rows, self.comms).role_op.astype(np.uint64) + np.uint64(1)
        kinds = splitmix64(code)
        if has_sizes:
            sizes = np.where(IS_OF_FIXED_SIZE.take(self.rows["op"]), self.rows["size_bytes"], 0)
            kinds = splitmix64(kinds ^ (sizes.astype(np.uint64) + np.uint64(1)))
        return kinds

    @property
    def is_gradient(self) -> np.ndarray:
        """Of each op, whether it reduces data outside of model parallel groups."""
        rows = self.rows
        role = columns_of(rows, self.comms).role_op // N_OPS
        is_data = (rows["size_bytes"] >= _CONTROL_BYTES) & _IS_FLOAT.take(rows["dtype"])
        found: np.ndarray = is_data & _REDUCES.take(rows["op"]) & _OUTSIDE_MODEL.take(role)
        return found


def blocks_of(steps: Sequence[StepSummary], rows: np.ndarray, comms: CommTable) -> Blocks | None:
    """The blocks, or None where too few were found or their ops are not told by their numbers."""
    steps = steps[: _MAX_BLOCKS + 1]
    if len(steps) <= 2 * MIN_ROUNDS:
        return None
    numbers = np.ascontiguousarray(rows["seq"])
    order = np.argsort(numbers, kind="stable")
    wanted = np.array([(step.first_seq, step.last_seq) for step in steps], np.int64)
    places = np.minimum(np.searchsorted(numbers, wanted, sorter=order), len(rows) - 1)
    found = order[places]
    first, last = found[:, 0], found[:, 1]
    is_told = (numbers[found] == wanted).all() and (np.diff(first) > 0).all()
    if not is_told or (last < first).any() or (last[:-1] >= first[1:]).any():
        return None
    gaps = np.array([(step.gap_ns, step.period_ns) for step in steps[:-1]], np.int64)
    return Blocks(rows, comms, first, last, gaps[:, 0], gaps[:, 1])


def content_period(blocks: Blocks, *, is_iteration: bool) -> int:
    """How many blocks make a step by what they hold; 0 where nothing speaks against one each."""
    codes = blocks.sums(blocks.kinds(has_sizes=not is_iteration))
    n = _period(codes)
    _, n_times = np.unique(codes, return_counts=True)
    if is_iteration:
        is_mixed = (n_times >= max(MIN_ROUNDS, _SECOND_MODEL * len(codes))).sum() > 1
        return n or (UNKNOWN_PERIOD if is_mixed else 0)
    if n == 0:
        return 0
    is_alone = n_times.max() <= len(codes) / 2
    return n if is_alone or _lacks_gradients(blocks, n) else 0


def _period(codes: np.ndarray) -> int:
    """The smallest number of blocks after which the contents recur; 0 where neighbours are alike
    just as often."""
    unlike = float((codes[1:] != codes[:-1]).mean())
    for n in range(2, min(len(codes) // MIN_ROUNDS, MAX_PERIOD) + 1):
        n_unlike = float((codes[n:] != codes[:-n]).mean())
        if n_unlike <= _MAX_UNLIKE and n_unlike * _TIMES_ALIKE < unlike:
            return n
    return 0


def _lacks_gradients(blocks: Blocks, n: int) -> bool:
    """Whether some places of the period reduce gradients and others do not."""
    has_some = blocks.sums(blocks.is_gradient.astype(np.uint64)) > 0
    share = has_some[: len(has_some) // n * n].reshape(-1, n).mean(axis=0)
    return bool((share > 0.5).any() and (share < 0.5).any())


def _sums(values: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    total = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values, dtype=values.dtype)])
    sums: np.ndarray = total[end] - total[first]
    return sums
