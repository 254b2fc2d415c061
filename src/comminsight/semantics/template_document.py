"""A template as the document that a template file holds: the inverse of the parser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from comminsight.semantics.template import ANY, Position, Symbol, Template, Topology
from comminsight.semantics.template import Sequence as Symbols

_FLAGS = ("is_close_inside_open", "is_anchor_proof", "is_refuted_by_pauses", "is_iteration")


def template_document(template: Template) -> dict[str, Any]:
    """The document with this one template.

    Raises ValueError for a template of several alternatives, which no file can hold.
    """
    entry: dict[str, Any] = {"name": template.name, "version": template.version}
    entry |= {"priority": template.priority}
    entry |= {"patience_ops": template.patience_ops} if template.patience_ops else {}
    entry |= {"topology": topology} if (topology := _topology(template.topology)) else {}
    if template.requires:
        entry["requires"] = [_condition(sequence) for sequence in template.requires]
    if template.forbids:
        entry["forbids"] = [_condition(sequence) for sequence in template.forbids]
    entry |= _only("open", template.opens)
    is_same = template.anchors == template.closes and bool(template.closes)
    entry |= {"anchor": "close"} if is_same else _only("anchor", template.anchors)
    entry |= _only("close", template.closes)
    entry |= _only("work", template.works)
    entry |= {"learn": template.learn} if template.learn else {}
    for flag in _FLAGS:
        entry |= {flag: True} if getattr(template, flag) else {}
    return {"file_version": template.file_version, "template": [entry]}


def _topology(topology: Topology) -> dict[str, Any]:
    groups = [
        {"role": rule.role.name} | _bounds("size", rule.min_size, rule.max_size)
        for rule in topology.groups
    ]
    bounds: dict[str, Any] = _bounds("world", topology.min_world, topology.max_world)
    return bounds | ({"groups": groups} if groups else {})


def _bounds(what: str, least: int, most: int) -> dict[str, int]:
    bounds = {f"min_{what}": least} if least > 1 else {}
    return bounds | ({f"max_{what}": most} if most != ANY else {})


def _only(key: str, alternatives: Sequence[Symbols]) -> dict[str, Any]:
    if len(alternatives) > 1:
        raise ValueError(f"{key} has {len(alternatives)} alternatives")
    return {key: [_position(position) for position in alternatives[0]]} if alternatives else {}


def _condition(sequence: Symbols) -> Any:
    """A sequence of one symbol is written as the symbol."""
    if len(sequence) == 1 and len(sequence[0]) == 1:
        return _table(sequence[0][0])
    return [_position(position) for position in sequence]


def _position(position: Position) -> Any:
    tables = [_table(symbol) for symbol in position]
    return tables[0] if len(tables) == 1 else tables


def _table(symbol: Symbol) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, members in (("role", symbol.roles), ("op", symbol.ops), ("dtype", symbol.dtypes)):
        table |= {key: _words(members)} if members else {}
    table |= {"min_bytes": symbol.min_bytes} if symbol.min_bytes else {}
    table |= {"max_bytes": symbol.max_bytes} if symbol.max_bytes != ANY else {}
    table |= {"count": symbol.count} if symbol.count != ANY else {}
    return table | ({"peer": symbol.peer.value} if symbol.peer else {})


def _words(members: Iterable[Enum]) -> str | list[str]:
    words = [member.name for member in members]
    return words[0] if len(words) == 1 else words
