"""What the work of a job tells of its steps, from the ops held so far.

*Work* are the ops that training alone has, at least once per step: gradients are reduced. Anchors
and closes that are complete before the work of their step are *empty*: a number reduced over all
ranks in every microbatch, or at the end of an evaluation. They end nothing.

*Behind*: a job may reduce its loss before its gradients. Its closes have their work behind them,
before the next Open; there, a close without work is an evaluation's.

Where some ends are empty and the ops up to the work do not repeat from step to step, nothing tells
microbatches from evaluations, and the template does not fit.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from comminsight.semantics.boundary import compiled
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.lead import (
    Counts,
    Excess,
    compare,
    counted,
    has_kinds,
    has_same_kinds,
    kinds,
    total,
)
from comminsight.semantics.learn_close import TOO_FEW_STEPS
from comminsight.semantics.matcher import Hits
from comminsight.semantics.template import Template

ENDS_WITHOUT_WORK = "ends_without_work"
_PATIENCE_OPS = 4096  # a job without work so far may be in its first microbatches
_LONG_PATIENCE_OPS = 32_768  # the same where it had few ends
_MAX_BLOCKS = 256  # looked at
_MIN_BLOCKS = 3  # before it is said that they differ
_MIN_DISPUTED_BLOCKS = 6  # of three, two may have lost an op of the same kind
_MAX_EMPTY = 64  # ends in a step: more microbatches than that are rather steps without gradients
_SHARED = 0.75  # of the steps must agree
_FEW = 0.05  # of the blocks may be strange: records are lost


class _Block(NamedTuple):
    """From an Open to the next Open behind the first end: positions of its first op and of its
    work (-1 for none), whether the work stands behind the end, and how many ends are empty."""

    first: int
    work: int
    is_behind: bool
    n_empty: int


class _Hits(NamedTuple):
    """Completions of Open, of Anchor (or Close) and of the work; ``is_inside`` is the template's
    ``is_close_inside_open``."""

    opens: Hits
    ends: Hits
    works: Hits
    is_inside: bool

    def least(self, opened: tuple[int, int]) -> int:
        """Where an end of the step may begin."""
        return opened[0] if self.is_inside else opened[1] + 1


class _Leads(NamedTuple):
    """The ops that most blocks have directly before their work and behind what is no training,
    empty if they differ; how many other blocks are strange: they have ops of kinds of which the
    lead has none, or without a lead, of other kinds than most; and whether not all blocks are the
    same."""

    lead: Counts
    n_strange: int
    is_disputed: bool = False


def with_work(
    found: Template | str, rows: np.ndarray, comms: CommTable, *, is_end: bool
) -> Template | str:
    """The template with what the work tells filled in, or the reason why not (yet)."""
    if isinstance(found, str) or not found.works:
        return found
    coder, matchers = compiled(found)
    classes = coder.encode(rows, comms)
    opens, anchors, closes, works = (matcher.feed(classes, 0) for matcher in matchers)
    hits = _Hits(opens, anchors if found.anchors else closes, works, found.is_close_inside_open)
    first = opens.next_from(0)
    if first is None or works.next_from(first[0]) is None:
        blocks = _blocks(hits._replace(works=hits.ends))
        leads = _leads(blocks, kinds(rows, comms), is_behind=bool(found.learn))
        return _without_work(found, blocks, leads)
    tried = _tried(hits)
    behind = [block.is_behind for block in tried if block.work >= 0]
    share = sum(behind) / max(len(behind), 1)
    if share >= _SHARED:
        return _with_work_behind(found, tried)
    if share > 1 - _SHARED:
        return ENDS_WITHOUT_WORK
    blocks = _blocks(hits)
    leads = _leads(blocks, kinds(rows, comms))
    n_needed = _MIN_DISPUTED_BLOCKS if leads.is_disputed else 0 if leads.lead else _MIN_BLOCKS
    if len(blocks) < n_needed and not is_end:
        return TOO_FEW_STEPS
    return _with_lead(found, blocks, leads.lead)


def _without_work(template: Template, blocks: list[_Block], leads: _Leads) -> Template | str:
    """A job that reduces no gradients: its ends are all there is, and the pauses are asked. Where
    the end is given and not learnt, one with a lead before it is work."""
    is_given = not template.learn
    if is_given and leads.n_strange > _FEW * len(blocks):
        return ENDS_WITHOUT_WORK
    patience_ops = _PATIENCE_OPS if len(blocks) > _MAX_EMPTY else _LONG_PATIENCE_OPS
    return msgspec.structs.replace(
        template, works=template.anchors or template.closes, lead=leads.lead,
        is_lead_work=is_given and bool(leads.lead), is_refuted_by_pauses=True,
        patience_ops=max(template.patience_ops, patience_ops),
    )  # fmt: skip


def _with_work_behind(template: Template, blocks: list[_Block]) -> Template | str:
    """Every end with work behind it is a step's, if between two of them there is mostly none."""
    worked = [i for i, block in enumerate(blocks) if block.work >= 0]
    between = np.diff(worked) - 1
    if len(between) and np.mean(between == 0) < _SHARED:
        return ENDS_WITHOUT_WORK
    return msgspec.structs.replace(template, is_work_behind=True)


def _with_lead(template: Template, blocks: list[_Block], lead: Counts) -> Template | str:
    n_empty = [block.n_empty for block in blocks]
    is_undecided = not lead or np.median(n_empty) > _MAX_EMPTY
    if any(n_empty) and is_undecided:
        return ENDS_WITHOUT_WORK
    return msgspec.structs.replace(template, lead=lead)


def _leads(blocks: list[_Block], codes: np.ndarray, *, is_behind: bool = True) -> _Leads:
    """What stands before the work of the blocks; with ``is_behind`` false, nothing else may."""
    leads = [counted(codes[block.first : block.work]) for block in blocks]
    if not leads:
        return _Leads((), 0)
    n_of = Counter(leads)
    usual = max(n_of, key=lambda lead: (n_of[lead], total(lead)))
    n_times = n_of[usual]
    n_ops, others = total(usual), list[Counts]()
    for block, lead in zip(blocks, leads, strict=True):
        begin = block.work - n_ops
        if is_behind and begin > block.first and counted(codes[begin : block.work]) == usual:
            found = compare(counted(codes[block.first : begin]), usual)
            n_times += found is not Excess.ALIKE
        elif lead != usual:
            others.append(lead)
    is_seen_twice = n_of[usual] >= min(2, len(blocks))  # once: it may have lost its first op
    if is_seen_twice and n_times >= _SHARED * len(blocks):
        n_strange = sum(not has_kinds(usual, of=other) for other in others)
        return _Leads(usual, n_strange, n_of[usual] < len(blocks))
    n_strange = sum(not has_same_kinds(other, usual) for other in others)
    return _Leads((), n_strange, len(blocks) > 1)


def _blocks(hits: _Hits) -> list[_Block]:
    """Steps as they are cut when ends before the work of a step do not count."""
    opens, ends, works, _ = hits
    blocks: list[_Block] = []
    found = opens.next_from(0)
    while found is not None and len(blocks) < _MAX_BLOCKS:
        first, last = found
        least = hits.least(found)
        work = works.next_from(first)
        end = None if work is None else ends.next_from(least, max(work[1], last))
        if work is None or end is None:
            break
        n_empty = _n_between(ends, least, work[1])
        blocks.append(_Block(first, work[0], is_behind=False, n_empty=n_empty))
        found = opens.next_from(end[1] + 1)
    return blocks


def _tried(hits: _Hits) -> list[_Block]:
    """Steps as they are cut when every end counts, those without work too."""
    opens, ends, works, _ = hits
    blocks: list[_Block] = []
    found = opens.next_from(0)
    while found is not None and len(blocks) < _MAX_BLOCKS:
        first, last = found
        end = ends.next_from(hits.least(found), last)
        following = None if end is None else opens.next_from(end[1] + 1)
        if end is None or following is None:
            break
        before, behind = works.next_from(first), works.next_from(end[1] + 1)
        work, is_behind = -1, False
        if before is not None and before[1] <= end[1]:
            work = before[0]
        elif behind is not None and behind[1] < following[0]:
            work = behind[0]
            is_behind = not _n_between(ends, work, following[0])  # an end there is the step's
        blocks.append(_Block(first, work, is_behind, n_empty=0))
        found = following
    return blocks


def _n_between(hits: Hits, first: int, until: int) -> int:
    """Completions that begin at or after a position and end before another."""
    n, found = 0, hits.next_from(first)
    while found is not None and found[1] < until:
        n, found = n + 1, hits.next_from(found[0] + 1, found[1] + 1)
    return n
