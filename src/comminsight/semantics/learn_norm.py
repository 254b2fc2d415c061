"""Finding which small all-reduce behind a reduce-scatter ends the step of a sharded job.

The norm of the gradients does, and there may be others: a loss that every microbatch reduces, and
the sums of layers that are normalised over all ranks. Two things tell them apart:

- behind the end of a step comes a forward pass: several gathers before anything is scattered. What
  is followed by a scatter, or by one gather and a scatter, stands inside a backward pass;
- a norm is as many numbers as there are parameters, at least one for each unit that is scattered; a
  loss is one. Where there is such a norm, what else a microbatch reduces ends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from comminsight.model.ops import Op
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.learn_close import TOO_FEW_STEPS
from comminsight.semantics.parts import LOOK_LIKE_PARTS
from comminsight.semantics.rounds import FORWARD_GATHERS
from comminsight.semantics.symbols import SymbolCoder
from comminsight.semantics.template import Position, Sequence, Template

_MOSTLY = 0.75  # of the ends of a size have a forward pass behind them
_MAX_DEPTH = 3  # small ops before the norm
_MIN_NUMBERS = 3  # of a norm: one or two may be a loss and a count
_MIN_SHARE = 0.1  # of the norms must stand at a depth


@dataclass(frozen=True, slots=True)
class _Ends:
    """Small all-reduces behind a scatter, or behind others that are: one entry each.

    ``depth`` is the number of others before it, ``n_gathers`` what is gathered behind it before
    anything is scattered (-1 where nothing is any more), ``n_scattered`` what was up to it.
    """

    size_bytes: np.ndarray
    count: np.ndarray
    depth: np.ndarray
    n_gathers: np.ndarray
    n_scattered: np.ndarray


def close_at_norm(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    """The template with Close filled in, or the reason why not (yet)."""
    scatter, small = template.anchors[0]
    ends = _ends(template, rows, comms)
    is_told = ends.n_gathers >= 0
    if is_told.sum() < max(min_blocks - 1, 1):
        return TOO_FEW_STEPS
    sizes = set(np.unique(ends.size_bytes[is_told]).tolist())
    closing = {size for size in sizes if _is_before_forward(ends, size)}
    if not closing:
        return LOOK_LIKE_PARTS
    norms = _norms(ends, closing, min_blocks)
    if norms:  # unmistakable: no pause is asked
        closes = _norm_sequences(ends, norms, scatter, small)
        template = msgspec.structs.replace(template, is_refuted_by_pauses=False)
    elif closing != sizes:
        closes = ((scatter, _of_sizes(small, closing)),)
    else:
        closes = template.anchors
    return msgspec.structs.replace(template, anchors=closes, closes=closes)


def _ends(template: Template, rows: np.ndarray, comms: CommTable) -> _Ends:
    """What ends a step perhaps; ``anchor`` is a scatter and a small op, ``open`` a gather."""
    (gather,), (scatter, small) = template.opens[0], template.anchors[0]
    coder = SymbolCoder((gather, scatter, small))
    fits = coder.fits[coder.encode(rows, comms)]
    depth_at: dict[int, int] = {}
    for place in np.flatnonzero(fits[1:, 2]).tolist():
        if fits[place, 1]:
            depth_at[place + 1] = 0
        elif (before := depth_at.get(place, _MAX_DEPTH)) < _MAX_DEPTH:
            depth_at[place + 1] = before + 1
    places = np.array(list(depth_at), np.intp)
    is_scatter = rows["op"] == Op.REDUCE_SCATTER
    scatters = np.flatnonzero(is_scatter & fits[:, 1])
    n_gathered = np.concatenate([[0], np.cumsum(fits[:, 0])])
    following = np.searchsorted(scatters, places)
    n_gathers = np.full(len(places), -1)
    is_told = following < len(scatters)
    until = scatters[following[is_told]]
    n_gathers[is_told] = n_gathered[until] - n_gathered[places[is_told]]
    return _Ends(
        rows["size_bytes"][places], rows["count"][places],
        np.array(list(depth_at.values()), np.intp), n_gathers, following,
    )  # fmt: skip


def _is_before_forward(ends: _Ends, size: int) -> bool:
    """Whether a forward pass follows most ends of a size."""
    own = ends.n_gathers[(ends.size_bytes == size) & (ends.n_gathers >= 0)]
    return bool((own >= FORWARD_GATHERS).mean() >= _MOSTLY)


def _norms(ends: _Ends, closing: set[int], min_blocks: int) -> list[int]:
    """The sizes of those that are norms by their numbers."""
    is_round = np.isin(ends.size_bytes, list(closing)) & (ends.depth == 0)
    scattered = np.diff(ends.n_scattered[is_round])
    n_units = float(np.median(scattered)) if len(scattered) else 0.0
    is_norm = ends.count >= max(_MIN_NUMBERS, n_units)
    found, n_times = np.unique(ends.size_bytes[is_norm], return_counts=True)
    return [
        size
        for size, times in zip(found.tolist(), n_times.tolist(), strict=True)
        if size in closing and times >= min_blocks
    ]


def _norm_sequences(
    ends: _Ends, norms: list[int], scatter: Position, small: Position
) -> tuple[Sequence, ...]:
    """The norm behind as many other small ops as it usually has before it."""
    depths, n_times = np.unique(ends.depth[np.isin(ends.size_bytes, norms)], return_counts=True)
    usual = [
        depth
        for depth, times in zip(depths.tolist(), n_times.tolist(), strict=True)
        if times >= _MIN_SHARE * n_times.sum()
    ]
    norm = _of_sizes(small, norms)
    return tuple((scatter, *(small,) * depth, norm) for depth in usual)


def _of_sizes(position: Position, sizes: set[int] | list[int]) -> Position:
    return tuple(
        msgspec.structs.replace(symbol, min_bytes=size, max_bytes=size)
        for size in sorted(sizes)
        for symbol in position
    )
