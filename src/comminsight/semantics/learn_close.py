"""Finding the close of a step from what stands between its boundaries.

*until_open*: every step has an Anchor, and what follows it up to the next Open is the same in most
steps (parameter gathers, norms, a report of the loss). The longest beginning of these runs that
most steps share, behind the Anchor, is the Close; what only some steps add to it (a log, an
evaluation, a checkpoint) lies between the steps.

*in_flight*: a pipeline has nothing but sends and receives. Each one carries a microbatch forward or
backward, and the forwards ahead of the backwards come down to nothing at the end of a step only,
provided that the stage ever has two microbatches in flight. A last stage of 1F1B has not: its
steps look like its microbatches, and nothing is learnt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Items
from itertools import pairwise

import msgspec
import numpy as np

from comminsight.model.ops import P2P_OPS, Op
from comminsight.semantics.comm_table import ROLES, CommTable
from comminsight.semantics.matcher import AnyMatcher, Hits, sound_suffix
from comminsight.semantics.symbols import SymbolCoder, directions
from comminsight.semantics.template import Peer, Position, Symbol, Template

_MAX_BLOCKS = 256
_MAX_RUN = 512  # ops
_SHARED = 0.75  # of the steps must agree
_OP_BASE = 16
_PEERS = (Peer.ANY, Peer.NEXT, Peer.PREVIOUS)


def close_until_open(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    """The template with Close filled in, or the reason why not yet."""
    opens, anchors = _hits(template, rows, comms)
    runs = _runs(opens, anchors, _role_and_op(rows, comms), is_inside=template.is_close_inside_open)
    if len(runs) < min_blocks:
        return "too_few_anchored_steps"
    shared = _shared_beginning(runs)
    tail = tuple((_symbol_of(code),) for code in shared)
    closes = tuple((*anchor, *tail) for anchor in template.anchors)
    return msgspec.structs.replace(template, closes=closes)


def close_in_flight(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    """The template with Close (and Anchor) filled in, or the reason why not yet."""
    position = template.opens[0][0]
    coder = SymbolCoder((position,))
    chosen = rows[coder.fits[coder.encode(rows, comms), 0] & np.isin(rows["op"], [*P2P_OPS])]
    if not len(chosen):
        return "no_pipeline_ops"
    codes, forward = _passes(chosen, comms)
    blocks = _balanced(codes, forward)
    if isinstance(blocks, str):
        return blocks
    if len(blocks) < min_blocks:
        return "pipeline_steps_undecided"
    shape, n_times = Counter(blocks).most_common(1)[0]
    suffix = sound_suffix(shape, [shape])
    if n_times < _SHARED * len(blocks) or suffix is None:
        return "pipeline_steps_undecided"
    closes = (tuple(_pass_position(position, code) for code in suffix),)
    return msgspec.structs.replace(template, closes=closes, anchors=closes)


def _hits(template: Template, rows: np.ndarray, comms: CommTable) -> tuple[Hits, Hits]:
    """Completions of Open and of Anchor over all rows."""
    opened, anchor = template.opens[0], template.anchors[0]
    coder = SymbolCoder((*opened, *anchor))
    classes = coder.encode(rows, comms)
    n = len(opened)
    found = [AnyMatcher([fits]).feed(classes, 0) for fits in (coder.fits[:, :n], coder.fits[:, n:])]
    return found[0], found[1]


def _runs(
    opens: Hits, anchors: Hits, codes: np.ndarray, *, is_inside: bool
) -> list[tuple[int, ...]]:
    """What stands between the first Anchor of each step and the next Open."""
    runs: list[tuple[int, ...]] = []
    found = opens.next_from(0)
    while found is not None and len(runs) < _MAX_BLOCKS:
        least = found[0] if is_inside else found[1] + 1
        anchor = anchors.next_from(least, found[1])
        if anchor is None:
            break
        found = opens.next_from(anchor[1] + 1)
        if found is not None:
            runs.append(tuple(codes[anchor[1] + 1 : min(found[0], anchor[1] + _MAX_RUN)].tolist()))
    return runs


def _shared_beginning(runs: Items[tuple[int, ...]]) -> tuple[int, ...]:
    """The longest beginning that most runs share."""
    shared: tuple[int, ...] = ()
    alive = list(runs)
    while True:
        n = len(shared)
        following = Counter(run[n] for run in alive if len(run) > n)
        if not following:
            return shared
        code, n_times = following.most_common(1)[0]
        if n_times < _SHARED * len(runs):
            return shared
        shared = (*shared, code)
        alive = [run for run in alive if len(run) > n and run[n] == code]


def _role_and_op(rows: np.ndarray, comms: CommTable) -> np.ndarray:
    index = comms.clip(np.ascontiguousarray(rows["comm_index"]))
    codes: np.ndarray = comms.roles.take(index).astype(np.int64) * _OP_BASE + np.minimum(
        rows["op"], _OP_BASE - 1
    )
    return codes


def _symbol_of(code: int) -> Symbol:
    role, op = divmod(code, _OP_BASE)
    return Symbol(roles=(ROLES[role],), ops=(Op(op),) if op in set(Op) else ())


def _passes(rows: np.ndarray, comms: CommTable) -> tuple[np.ndarray, np.ndarray]:
    """Per op, a code of (op, direction) and whether it carries forward (1), backward (-1) or
    neither (0)."""
    index = comms.clip(np.ascontiguousarray(rows["comm_index"]))
    direction = directions(rows, index, comms).astype(np.int64)
    is_send = rows["op"] == Op.SEND
    forward = np.where(direction == 1, 1, -1) * np.where(is_send, 1, -1)
    forward[direction == 0] = 0
    return rows["op"].astype(np.int64) * len(_PEERS) + direction, forward


def _balanced(codes: np.ndarray, forward: np.ndarray) -> list[tuple[int, ...]] | str:
    """The ops between two points with nothing in flight, of whole steps."""
    ahead = np.cumsum(forward)
    ahead -= min(int(ahead.min()), 0)
    per_pass = len({*np.unique(codes[forward > 0]).tolist()})  # a middle stage receives and sends
    if int(ahead.max()) <= per_pass:
        return "one_microbatch_in_flight"
    ends = [0, *(np.flatnonzero(ahead == 0) + 1)[:_MAX_BLOCKS].tolist()]
    if int(ahead[0] - forward[0]) != 0:
        ends = ends[1:]  # the stream begins within a step
    return [tuple(codes[first:last].tolist()) for first, last in pairwise(ends)]


def _pass_position(position: Position, code: int) -> Position:
    op, direction = divmod(code, len(_PEERS))
    return tuple(
        msgspec.structs.replace(symbol, ops=(Op(op),), peer=_PEERS[direction])
        for symbol in position
    )
