"""What is wrong with a template although it can be read: it could never win, or never end a step.

Said only where it is certain. A sequence *covers* another where every op that fits a position of
the second fits the position of the first; then an occurrence of the second holds one of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from comminsight.model.ops import P2P_OPS
from comminsight.semantics.template import ANY, Peer, Position, Symbol, Template, sequence_label
from comminsight.semantics.template import Sequence as Positions

_SEE = "see docs/templates.md"
_NORM_OPS = 2  # of the anchor that ``learn_norm`` looks at


class Fault(NamedTuple):
    """``key`` is the key of the template that is at fault."""

    key: str
    message: str
    next_step: str


def faults(template: Template) -> Iterator[Fault]:
    """Everything that is certainly wrong with one template, the gravest first."""
    yield from _impossible(template)
    yield from _forbidden(template)
    yield from _late_anchor(template)
    yield from _learning(template)


def rivals(templates: Sequence[Template]) -> Iterator[tuple[Template, Template]]:
    """Pairs of equal priority of which neither excludes the other: chance would decide."""
    for one, other in combinations(templates, 2):
        if one.priority == other.priority and not (_excludes(one, other) or _excludes(other, one)):
            yield one, other


def covers(outer: Position, inner: Position) -> bool:
    """Whether every op that fits ``inner`` fits ``outer``."""
    return all(any(_symbol_covers(wide, narrow) for wide in outer) for narrow in inner)


def _symbol_covers(wide: Symbol, narrow: Symbol) -> bool:
    words = (
        (wide.roles, narrow.roles), (wide.ops, narrow.ops), (wide.dtypes, narrow.dtypes)
    )  # fmt: skip
    if not all(not outer or (inner and set(inner) <= set(outer)) for outer, inner in words):
        return False
    is_below = wide.max_bytes == ANY or ANY < narrow.max_bytes <= wide.max_bytes
    return (
        wide.min_bytes <= narrow.min_bytes
        and is_below
        and wide.count in {ANY, narrow.count}
        and wide.peer in {Peer.ANY, narrow.peer}
    )


def _contains(sequence: Positions, part: Positions) -> int | None:
    """Where ``part`` covers a stretch of ``sequence`` first; None if nowhere."""
    for first in range(len(sequence) - len(part) + 1):
        if all(covers(wide, sequence[first + i]) for i, wide in enumerate(part)):
            return first
    return None


def _needed(template: Template) -> list[tuple[str, Positions]]:
    """The sequences that must occur in a job of the template, with the key of each."""
    named = (
        ("open", template.opens), ("anchor", template.anchors), ("close", template.closes),
        ("requires", template.requires),
    )  # fmt: skip
    return [(key, sequence) for key, sequences in named for sequence in sequences]


def _impossible(template: Template) -> Iterator[Fault]:
    works = [("work", sequence) for sequence in template.works]
    for key, sequence in [*_needed(template), *works]:
        for position in sequence:
            if all(_is_impossible(symbol) for symbol in position):
                label = " or ".join(symbol.label for symbol in position)
                yield Fault(
                    key, f"no op can fit {label}: {key} is unreachable",
                    "min_bytes must not exceed max_bytes; peer goes with op SEND and RECV",
                )  # fmt: skip


def _is_impossible(symbol: Symbol) -> bool:
    is_empty = symbol.max_bytes != ANY and symbol.min_bytes > symbol.max_bytes
    has_peer_without_p2p = bool(symbol.peer and symbol.ops and not P2P_OPS & set(symbol.ops))
    return is_empty or has_peer_without_p2p


def _forbidden(template: Template) -> Iterator[Fault]:
    for key, sequence in _needed(template):
        for forbidden in template.forbids:
            if _contains(sequence, forbidden) is not None:
                yield Fault(
                    key,
                    f"{key} is unreachable: forbids rules out {sequence_label(forbidden)}",
                    f"forbid less, or take it out of {key}",
                )


def _late_anchor(template: Template) -> Iterator[Fault]:
    """Close complete before every Anchor: the Anchor would stand behind the step's end."""
    for anchor in template.anchors:
        for close in template.closes:
            first = _contains(anchor, close)
            if first is not None and first + len(close) < len(anchor):
                yield Fault(
                    "anchor",
                    "anchor is unreachable: close is complete before it, "
                    f"at {sequence_label(anchor[first : first + len(close)])}",
                    'let the anchor end with close or before it (anchor = "close")',
                )


def _learning(template: Template) -> Iterator[Fault]:
    needs_anchor = template.learn in {"until_open", "norm"}
    if template.learn and template.closes:
        yield Fault("close", "close is learnt: it cannot be given too", "leave out close or learn")
    elif template.learn and bool(template.anchors) is not needs_anchor:
        what = "needs an anchor" if needs_anchor else "finds its own anchor: none can be given"
        yield Fault("learn", f"learn = {template.learn!r} {what}", _SEE)
    elif template.learn and template.learn != "until_open":
        yield from _long(template)


def _long(template: Template) -> Iterator[Fault]:
    """Sequences of which a learner looks at so many positions and no more."""
    if any(len(sequence) != 1 for sequence in template.opens):
        yield Fault("open", f"learn = {template.learn!r} takes an open of one op", _SEE)
    if any(len(sequence) != _NORM_OPS for sequence in template.anchors):
        what = "takes an anchor of two ops: a scatter, and a small reduction behind it"
        yield Fault("anchor", f"learn = {template.learn!r} {what}", _SEE)


def _excludes(one: Template, other: Template) -> bool:
    """Whether ``other`` forbids what ``one`` requires."""
    return any(
        _contains(required, forbidden) is not None
        for required in one.requires
        for forbidden in other.forbids
    )
