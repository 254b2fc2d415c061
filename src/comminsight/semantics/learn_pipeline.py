"""The step of a pipeline that has nothing but sends and receives.

Each op carries a microbatch forward or backward, and the forwards ahead of the backwards come down
to nothing at the end of a step only, provided that the stage ever has two microbatches in flight. A
last stage of 1F1B has not: its steps look like its microbatches, and nothing is learnt.

From the step that occurs most often are learnt: as Close, the shortest end that completes nowhere
else; as Open, a short beginning, and as Anchor, a short stretch that occurs only behind the last
such beginning. Short ones survive a lost record where a long Close does not.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np

from comminsight.model.ops import P2P_OPS, Op
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.matcher import completions, sound_suffix
from comminsight.semantics.symbols import PEERS, SymbolCoder, directions
from comminsight.semantics.template import Position, Sequence, Template

_MAX_BLOCKS = 256
_SHARED = 0.5  # of the ops must be of steps that are alike
_MAX_PART = 8  # ops of a learnt Open or Anchor
_UNDECIDED = "pipeline_steps_undecided"
_Shape = tuple[int, ...]


def close_in_flight(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    """The template with its boundaries filled in, or the reason why not yet."""
    position = template.opens[0][0]
    coder = SymbolCoder((position,))
    chosen = rows[coder.fits[coder.encode(rows, comms), 0] & np.isin(rows["op"], [*P2P_OPS])]
    if not len(chosen):
        return "no_pipeline_ops"
    codes, forward = _passes(chosen, comms)
    holes = np.flatnonzero(_is_behind_loss(chosen))
    pieces = zip(np.split(codes, holes), np.split(forward, holes), strict=True)
    blocks = [block for piece in pieces for block in _balanced(*piece)][:_MAX_BLOCKS]
    weights = Counter[_Shape]()
    for block in blocks:
        weights[block] += len(block)
    shape, n_ops = weights.most_common(1)[0] if blocks else ((), 0)
    if n_ops < max(min_blocks * len(shape), _SHARED * weights.total()) or not shape:
        return _UNDECIDED
    if _has_one_microbatch(shape, dict(zip(codes.tolist(), forward.tolist(), strict=True))):
        return "one_microbatch_in_flight"
    close = sound_suffix(shape, [shape])
    found = _open_and_anchor(shape)
    if close is None or found is None:
        return _UNDECIDED

    def sequences(part: _Shape) -> tuple[Sequence, ...]:
        return (tuple(_pass_position(position, code) for code in part),)

    return msgspec.structs.replace(
        template, opens=sequences(found[0]), anchors=sequences(found[1]), closes=sequences(close)
    )


def _passes(rows: np.ndarray, comms: CommTable) -> tuple[np.ndarray, np.ndarray]:
    """Per op, a code of (op, direction) and whether it carries forward (1), backward (-1) or
    neither (0)."""
    index = comms.clip(np.ascontiguousarray(rows["comm_index"]))
    direction = directions(rows, index, comms).astype(np.int64)
    forward = np.where(direction == 1, 1, -1) * np.where(rows["op"] == Op.SEND, 1, -1)
    forward[direction == 0] = 0
    return rows["op"].astype(np.int64) * len(PEERS) + direction, forward


def _is_behind_loss(rows: np.ndarray) -> np.ndarray:
    """Where the op before it on its communicator is not the one before it in the stream's order:
    what is in flight cannot be counted across."""
    order = np.argsort(rows["comm_index"], kind="stable")
    numbers, comm_index = rows["op_seq"][order].astype(np.int64), rows["comm_index"][order]
    is_behind = np.zeros(len(rows), bool)
    is_behind[order[1:]] = (np.diff(numbers) != 1) & (comm_index[1:] == comm_index[:-1])
    return is_behind


def _balanced(codes: np.ndarray, forward: np.ndarray) -> list[_Shape]:
    """The ops between two points with nothing in flight; none where nothing is."""
    if not len(codes):
        return []
    ahead = np.cumsum(forward)
    ahead -= min(int(ahead.min()), 0)
    ends = [0, *(np.flatnonzero(ahead == 0) + 1).tolist()]
    if int(ahead[0] - forward[0]) != 0:
        ends = ends[1:]  # the stream begins within a step
    return [tuple(codes[first:last].tolist()) for first, last in pairwise(ends)]


def _has_one_microbatch(shape: _Shape, forward: dict[int, int]) -> bool:
    """Whether no more than one pass is ever ahead; a middle stage counts two ops per pass."""
    ahead = np.cumsum([forward[code] for code in shape])
    per_pass = len({code for code in shape if forward[code] > 0})
    return int(ahead.max()) <= per_pass


def _open_and_anchor(shape: _Shape) -> tuple[_Shape, _Shape] | None:
    """The shortest beginning behind whose last completion some stretch occurs for the first time,
    and of the shortest such stretches the one that occurs most often."""
    for n in range(1, _MAX_PART + 1):
        opening = shape[:n]
        *_, last_open = completions(opening, shape)
        for m in range(1, _MAX_PART + 1):
            places = range(last_open + 1, len(shape) - m + 1)
            stretches = {shape[first : first + m] for first in places}
            late = [
                (len(found), stretch)
                for stretch in stretches
                if (found := list(completions(stretch, shape))) and found[0] - m + 1 > last_open
            ]
            if late:
                return opening, max(late)[1]
    return None


def _pass_position(position: Position, code: int) -> Position:
    op, direction = divmod(code, len(PEERS))
    return tuple(
        msgspec.structs.replace(symbol, ops=(Op(op),), peer=PEERS[direction]) for symbol in position
    )
