"""Finding the close of a step from what follows its anchor.

Every step has an Anchor, and what follows it up to the next Open is the same in most steps
(parameter gathers, norms, a report of the loss). The longest beginning of these runs that most
steps share, behind the Anchor, is the Close; what only some steps add to it (a log, an evaluation,
a checkpoint) lies between the steps. A step that has lost a record there says nothing from that
record on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Items

import msgspec
import numpy as np

from comminsight.model.ops import Op
from comminsight.semantics.comm_table import ROLES, CommTable
from comminsight.semantics.matcher import AnyMatcher, Hits
from comminsight.semantics.symbols import N_OPS, Columns, SymbolCoder, columns_of
from comminsight.semantics.template import Symbol, Template

TOO_FEW_STEPS = "too_few_anchored_steps"
MIN_BLOCKS = 3
MIN_BLOCKS_AT_END = 2  # where no more ops will come
_MIN_DISPUTED_BLOCKS = 6  # where they do not agree: of three, one that lost a record outweighs much
_MAX_BLOCKS = 256
_MAX_RUN = 512  # ops
_SHARED = 0.75  # of the steps that agree so far must agree on the next op
_LEFT = 0.5  # of all steps must agree to the last op: no more lose a record behind the anchor


def close_until_open(
    template: Template, rows: np.ndarray, comms: CommTable, min_blocks: int
) -> Template | str:
    """The template with Close filled in, or the reason why not yet."""
    columns = columns_of(rows, comms)
    opens, anchors = _hits(template, rows, comms, columns)
    runs = _runs(opens, anchors, columns.role_op, is_inside=template.is_close_inside_open)
    if len(runs) < min_blocks:
        return TOO_FEW_STEPS
    shared, is_disputed = _shared_beginning(runs)
    if is_disputed and min_blocks > MIN_BLOCKS_AT_END and len(runs) < _MIN_DISPUTED_BLOCKS:
        return TOO_FEW_STEPS
    tail = tuple((_symbol_of(code),) for code in shared)
    closes = tuple((*anchor, *tail) for anchor in template.anchors)
    return msgspec.structs.replace(template, closes=closes)


def _hits(
    template: Template, rows: np.ndarray, comms: CommTable, columns: Columns
) -> tuple[Hits, Hits]:
    """Completions of Open and of Anchor over all rows."""
    opened, anchor = template.opens[0], template.anchors[0]
    coder = SymbolCoder((*opened, *anchor))
    classes = coder.encode(rows, comms, columns)
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


def _shared_beginning(runs: Items[tuple[int, ...]]) -> tuple[tuple[int, ...], bool]:
    """The longest beginning that most runs share, each as far as it agrees; and whether it ends
    where half of them go on alike."""
    shared: tuple[int, ...] = ()
    alive = list(runs)
    while True:
        n = len(shared)
        following = Counter(run[n] for run in alive if len(run) > n)
        if not following:
            return shared, False
        code, n_times = following.most_common(1)[0]
        if n_times < max(_SHARED * len(alive), _LEFT * len(runs)):
            return shared, n_times >= _LEFT * len(alive)
        shared = (*shared, code)
        alive = [run for run in alive if len(run) > n and run[n] == code]


def _symbol_of(code: int) -> Symbol:
    role, op = divmod(code, N_OPS)
    return Symbol(roles=(ROLES[role],), ops=(Op(op),) if op in set(Op) else ())
