"""Finding the close of a step that has no op of its own to end it.

Data parallel training reduces every gradient exactly once per step, so the gradient bytes of a
step are constant although the buckets are not (one bucket in the first step, others after the
rebuild). With S bytes per step the gradient ops fall into blocks of exactly S. What S is, the data
must prove, in this order:

1. *first run*: the stream begins with the job, and another op (the loss, the rebuild's broadcasts)
   follows the first run of gradient ops: S is the sum of that run.
2. *separated runs*: other ops separate the gradient ops into runs of equal bytes: S is a run.
3. *period*: nothing separates them, but the bucket sizes repeat with a period of unequal sizes.
4. *pauses*: the pause before every nth gradient op is by far the longest of its block: S is n
   buckets, unless the pauses between such blocks have a period again (they are layers then). Or it
   is by far the longest before each of most separated runs: S is a run. A forward pass fits into
   such a pause: what is short beside the block is an evaluation or a checkpoint every n steps.

A run that repeats a shorter one inside may be several steps and is not taken for 1 and 2.
Otherwise the boundary is not decidable and nothing is learnt: a wrong step is worse than none.
Blocks that other ops break into, or that do not add up, refute S unless they are few: records may
be lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.learn_close import MIN_BLOCKS, close_until_open
from comminsight.semantics.learn_norm import close_at_norm
from comminsight.semantics.learn_pipeline import close_in_flight
from comminsight.semantics.matcher import sound_suffix
from comminsight.semantics.pauses import period_of
from comminsight.semantics.symbols import SymbolCoder
from comminsight.semantics.template import Position, Sequence, Template
from comminsight.semantics.work import with_work

_MAX_BLOCK = 512  # gradient ops per step
_MAX_GRADIENTS = 8192  # gradient ops looked at
_MAX_PAUSED_BLOCK = 64
_MIN_PAUSED_BLOCKS = 4
_MIN_PAUSED_RATIO = 0.9
_MAX_BAD_RATIO = 0.2  # of the blocks
_PAUSED_PATIENCE_OPS = 1024  # layers of tensor parallel jobs have pauses too: seen in some steps
_PAUSE_FACTOR = 1.5  # longer by less is noise
_FORWARD = 0.25  # of a backward pass at least, without the reductions in it
_LEARNERS = {
    "until_open": close_until_open, "in_flight": close_in_flight, "norm": close_at_norm,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradient ops in order: sizes, starts, whether another op stands before each, and at the end.

    ``idle_ns``: from the end of each to the start of the next, 0 where they overlap. ``is_whole``:
    the stream is known from the job's first op on.
    """

    sizes: list[int]
    start_ns: np.ndarray
    idle_ns: np.ndarray
    is_separated: list[bool]
    is_followed: bool
    is_whole: bool


def resolve(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int = MIN_BLOCKS
) -> Template | str:
    """The template with Close and lead filled in from the ops seen so far, or the reason why not
    yet."""
    found = _closed(template, rows, comms, min_blocks)
    return with_work(found, rows, comms, is_end=min_blocks < MIN_BLOCKS)


def _closed(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    if not template.learn:
        return template
    if (learner := _LEARNERS.get(template.learn)) is not None:
        return learner(template, rows, comms, min_blocks)
    gradients = _gradients(template.opens[0][0], rows, comms)
    if not gradients.sizes:
        return "no_gradient_ops"
    found = _blocks(gradients, min_blocks)
    if isinstance(found, str):
        return found
    blocks, is_by_pauses = found
    closes = _closes(template.opens[0][0], blocks)
    if not closes:
        return "bucket_sizes_ambiguous"
    resolved = msgspec.structs.replace(
        template, opens=_opens(template.opens[0][0], blocks), closes=closes, anchors=closes
    )
    if not is_by_pauses:
        return resolved
    return msgspec.structs.replace(
        resolved, patience_ops=_PAUSED_PATIENCE_OPS, is_refuted_by_pauses=True
    )


def _gradients(position: Position, rows: np.ndarray, comms: CommTable) -> Gradients:
    coder = SymbolCoder((position,))
    where = np.flatnonzero(coder.fits[coder.encode(rows, comms), 0])[:_MAX_GRADIENTS]
    chosen = rows[where]
    is_separated = np.diff(where, prepend=-1) > 1
    # a hole before the first op of the stream means that the job's beginning was not seen
    is_whole = len(rows) > 0 and int(rows["seq"][:_MAX_GRADIENTS].min()) <= 1
    start_ns = np.ascontiguousarray(chosen["start_ns"])
    over_ns = np.maximum(chosen["end_ns"], start_ns)
    return Gradients(
        sizes=chosen["size_bytes"].tolist(),
        start_ns=start_ns,
        idle_ns=np.maximum(start_ns[1:] - over_ns[:-1], 0),
        is_separated=is_separated.tolist(),
        is_followed=bool(len(where) and where[-1] + 1 < len(rows)),
        is_whole=is_whole,
    )


def _blocks(gradients: Gradients, min_blocks: int) -> tuple[list[tuple[int, ...]], bool] | str:
    """Complete blocks of one step each, from the first that is known to be whole, and whether only
    pauses tell them apart."""
    reason = "gradient_bytes_undecided"
    for first, block_bytes, is_by_pauses in _candidates(gradients):
        blocks = _partition(gradients, first, block_bytes)
        if blocks is None:
            reason = "gradient_bytes_not_constant"
        elif len(blocks) >= min_blocks:
            return blocks, is_by_pauses
    return reason


def _candidates(gradients: Gradients) -> list[tuple[int, int, bool]]:
    """(first gradient op, bytes per step, is it by pauses alone) of each evidence that applies."""
    sizes = gradients.sizes
    ends = [i for i in range(1, len(sizes)) if gradients.is_separated[i]]
    if gradients.is_followed:
        ends.append(len(sizes))
    found = []
    if gradients.is_whole and ends and not _repeats(sizes[: ends[0]]):
        found.append((0, sum(sizes[: ends[0]]), False))
    elif len(ends) >= 3 and not _repeats(sizes[ends[0] : ends[1]]):
        found.append((ends[0], sum(sizes[ends[0] : ends[1]]), False))
    if not ends and (period := _period(sizes)):
        first = _first_of_period(gradients, period)
        found += [(first, sum(sizes[:period]), False)] if first >= 0 else []
    found += [(first, sum(sizes[first : first + n]), True) for first, n in _paused(gradients)]
    runs = _paused_runs(gradients, ends)
    found += [(first, sum(sizes[first:last]), False) for first, last in runs]
    return found


def _repeats(run: list[int]) -> bool:
    """Whether a run is a shorter run several times over: it may be several steps."""
    return (
        any(
            len(run) % n == 0 and run == run[:n] * (len(run) // n)
            for n in range(1, len(run) // 2 + 1)
        )
        and len(run) > 1
    )


def _period(sizes: list[int]) -> int:
    """The smallest period that the sizes show three times; 0 for none."""
    for period in range(1, min(len(sizes) // 3, _MAX_BLOCK) + 1):
        if sizes[period:] == sizes[:-period]:
            return period
    return 0


def _first_of_period(gradients: Gradients, period: int) -> int:
    """The first op of a period of sizes that is a step; -1 where it is not known, or may be several
    steps with something an epoch reduces: where shorter ones make up most of it, or the job's first
    op was not seen, the pause before it must be the longest around it."""
    sizes = gradients.sizes[:period]
    if len(set(sizes)) == 1:
        return -1
    if gradients.is_whole and not _is_mostly_repeats(sizes):
        return 0
    for phase in (0,) if gradients.is_whole else range(period):
        is_paused = _paused_blocks(gradients, phase, period)
        if is_paused.sum() >= _MIN_PAUSED_RATIO * max(len(is_paused), 2):
            return phase
    return -1


def _is_mostly_repeats(run: list[int]) -> bool:
    """Whether at least half of a run is a shorter run twice or more, one behind the other."""
    for n in range(1, len(run) // 2 + 1):
        n_same = longest = 0
        for one, other in zip(run, run[n:], strict=False):
            n_same = n_same + 1 if one == other else 0
            longest = max(longest, n_same)
        if longest >= n and 2 * (longest + n) >= len(run):
            return True
    return False


def _paused(gradients: Gradients) -> list[tuple[int, int]]:
    """(first op, ops per block) where the pause before a block is the longest around it."""
    n_pauses = len(gradients.start_ns) - 1
    for length in range(2, min(len(gradients.sizes) // _MIN_PAUSED_BLOCKS, _MAX_PAUSED_BLOCK) + 1):
        for phase in (0,) if gradients.is_whole else range(length):
            is_paused = _paused_blocks(gradients, phase, length)
            is_clear = is_paused.size and is_paused.mean() >= _MIN_PAUSED_RATIO
            if len(is_paused) >= _MIN_PAUSED_BLOCKS - 1 and is_clear:
                runs = [(at, at + length) for at in range(phase + length, n_pauses, length)]
                is_several = 0 < _inner_period(gradients.start_ns, runs) < length
                return [] if is_several else [(phase, length)]
    return []


def _paused_runs(gradients: Gradients, ends: list[int]) -> list[tuple[int, int]]:
    """(first op, one past the last) of a run of the shape that most separated runs have, where the
    pause before such a run is the longest around it: it is a step and not several."""
    runs = [(first, last) for first, last in pairwise(ends) if last > first + 1]
    shapes = Counter(tuple(gradients.sizes[first:last]) for first, last in runs)
    if not shapes:
        return []
    shape, n_times = shapes.most_common(1)[0]
    usual = [run for run in runs if tuple(gradients.sizes[slice(*run)]) == shape]
    is_paused = [_is_paused(gradients, *run) for run in usual]
    is_enough = n_times >= max(_MIN_PAUSED_BLOCKS, len(runs) / 2)
    is_clear = sum(is_paused) >= _MIN_PAUSED_RATIO * n_times
    if not is_enough or not is_clear:
        return []
    return [] if 0 < _inner_period(gradients.start_ns, usual) < len(shape) else usual[:1]


def _inner_period(start_ns: np.ndarray, runs: list[tuple[int, int]]) -> int:
    """The period of the pauses inside of runs: a run of several steps has one."""
    inner = [np.diff(start_ns[first - 1 : last]).astype(np.float64) for first, last in runs]
    for pauses in inner:
        pauses[0] = np.nan
    return period_of(np.concatenate(inner))


def _is_paused(gradients: Gradients, first: int, last: int) -> bool:
    pauses = np.diff(gradients.start_ns[first - 1 : last])
    return bool(_are_paused(pauses[None, :], gradients.idle_ns[None, first - 1 : last - 1])[0])


def _paused_blocks(gradients: Gradients, phase: int, length: int) -> np.ndarray:
    """Of each block behind the first of that phase, whether the pause before it begins a step."""
    begin = phase + length - 1  # pauses[i] stands before gradient op i + 1
    end = begin + max(len(gradients.idle_ns) - begin, 0) // length * length
    pauses = np.diff(gradients.start_ns)[begin:end].reshape(-1, length)
    return _are_paused(pauses, gradients.idle_ns[begin:end].reshape(-1, length))


def _are_paused(pauses: np.ndarray, idle_ns: np.ndarray) -> np.ndarray:
    """Of each row, whether the first pause is by far the longest and a forward pass fits in."""
    rest = pauses[:, 1:]
    has_room = pauses[:, 0] - rest.mean(axis=1) >= _FORWARD * idle_ns[:, 1:].sum(axis=1)
    are_paused: np.ndarray = has_room & (pauses[:, 0] > _PAUSE_FACTOR * rest.max(axis=1))
    return are_paused


def _partition(gradients: Gradients, first: int, block_bytes: int) -> list[tuple[int, ...]] | None:
    """Consecutive blocks of exactly ``block_bytes``; None if the bytes or other ops refute it.

    A block that does not add up is passed over up to the next op that others separate, since a
    record may be lost; where there are many of them it is no loss.
    """
    blocks: list[tuple[int, ...]] = []
    block: list[int] = []
    total_bytes, n_bad = 0, 0
    is_lost = False  # within a block that does not add up
    for size, is_separated in zip(
        gradients.sizes[first:], gradients.is_separated[first:], strict=True
    ):
        if is_separated and (block or is_lost):
            n_bad += bool(block)
            block, total_bytes, is_lost = [], 0, False
        if is_lost:
            continue
        block.append(size)
        total_bytes += size
        if total_bytes == block_bytes:
            blocks.append(tuple(block))
            block, total_bytes = [], 0
        elif total_bytes > block_bytes or len(block) > _MAX_BLOCK:
            n_bad, is_lost = n_bad + 1, True
            block, total_bytes = [], 0
    is_refuted = n_bad > _MAX_BAD_RATIO * (n_bad + len(blocks))
    return None if is_refuted else blocks


def _opens(position: Position, blocks: list[tuple[int, ...]]) -> tuple[Sequence, ...]:
    """Any op of a size that occurs in a step: what an evaluation or an epoch reduces opens none. A
    step whose first record is lost is opened by its second."""
    sizes = sorted({size for block in blocks for size in block})
    return ((tuple(symbol for size in sizes for symbol in _sequence(position, (size,))[0]),),)


def _closes(position: Position, blocks: list[tuple[int, ...]]) -> tuple[Sequence, ...]:
    """For each shape of block the shortest suffix that completes at block ends only."""
    shapes = list(dict.fromkeys(blocks))
    sample = blocks[: max(16, len(shapes))]
    suffixes: list[tuple[int, ...]] = []
    for shape in shapes:
        suffix = sound_suffix(shape, sample)
        if suffix is None:
            return ()
        suffixes.append(suffix)
    return tuple(_sequence(position, suffix) for suffix in dict.fromkeys(suffixes))


def _sequence(position: Position, sizes: tuple[int, ...]) -> Sequence:
    return tuple(
        tuple(
            msgspec.structs.replace(symbol, min_bytes=size, max_bytes=size) for symbol in position
        )
        for size in sizes
    )
