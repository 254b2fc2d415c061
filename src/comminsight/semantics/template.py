"""Templates: which ops open, anchor and close a step of a kind of job.

A template file is TOML; the caller reads it and gives the parsed document:

    file_version = 1
    [[template]]
    name = "fsdp2"                   # unique over all files
    version = 1                      # of this template; written into every step
    priority = 30                    # the highest that fits wins
    patience_ops = 4096              # how many ops must be seen before it may win
    requires = [SEQUENCE, ...]       # each must occur
    forbids = [SEQUENCE, ...]        # none may occur
    open = SEQUENCE
    anchor = SEQUENCE                # or "close": the same ops
    close = SEQUENCE

A SEQUENCE is a list of positions, matched by strictly consecutive ops. A position is a table
``{role, op, dtype, min_bytes, max_bytes, count, peer}`` (all optional, so ``{}`` is any op), or a
list of tables of which one must fit. In ``requires`` and ``forbids`` a single table may stand for
a sequence of one. Unknown keys and words are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, TypeVar

import msgspec

from comminsight.errors import InputError
from comminsight.model.ops import CommRole, DType, Op

TEMPLATE_FILE_VERSION = 1
ANY = -1
_Member = TypeVar("_Member", bound=Enum)


class Peer(StrEnum):
    """Direction of a P2P op along the ranks of its communicator."""

    ANY = ""
    NEXT = "next"
    PREVIOUS = "previous"


class Symbol(msgspec.Struct, frozen=True):
    """A predicate on one op; an empty tuple, ``ANY`` and ``Peer.ANY`` leave the property free."""

    roles: tuple[CommRole, ...] = ()
    ops: tuple[Op, ...] = ()
    dtypes: tuple[DType, ...] = ()
    min_bytes: int = 0
    max_bytes: int = ANY
    count: int = ANY
    peer: Peer = Peer.ANY

    @property
    def label(self) -> str:
        """As people read it, for example ``all_reduce@GLOBAL count=1``."""
        ops = "|".join(op.name.lower() for op in self.ops) or "any"
        roles = "|".join(role.value for role in self.roles) or "any"
        parts = [f"{ops}@{roles}"]
        parts += [f">={self.min_bytes}B"] if self.min_bytes else []
        parts += [f"<={self.max_bytes}B"] if self.max_bytes != ANY else []
        parts += ["|".join(dtype.name.lower() for dtype in self.dtypes)] if self.dtypes else []
        parts += [f"count={self.count}"] if self.count != ANY else []
        parts += [f"peer={self.peer.value}"] if self.peer else []
        return " ".join(parts)


Position = tuple[Symbol, ...]  # one of these
Sequence = tuple[Position, ...]  # strictly consecutive


def sequence_label(sequence: Sequence) -> str:
    """A sequence as people read it."""
    return ", ".join(" or ".join(symbol.label for symbol in position) for position in sequence)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One template. Of ``opens``, ``anchors``, ``closes`` any alternative may match.

    ``learn`` names how open and close are found in the data instead (see ``learn``); it is empty
    in a template that can be matched. ``is_close_inside_open``: Close (and Anchor) may
    use the ops of Open, but not be complete before it.
    ``is_anchor_proof``: an Anchor alone proves the end of the last step at explicit end.
    """

    name: str
    version: int
    file_version: int = TEMPLATE_FILE_VERSION
    priority: int = 0
    patience_ops: int = 0
    requires: tuple[Sequence, ...] = ()
    forbids: tuple[Sequence, ...] = ()
    opens: tuple[Sequence, ...] = ()
    anchors: tuple[Sequence, ...] = ()
    closes: tuple[Sequence, ...] = ()
    learn: str = ""
    is_close_inside_open: bool = False
    is_anchor_proof: bool = False


class TemplateFile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed template file."""

    file_version: int
    templates: tuple[Template, ...]


LEARNERS = frozenset({"gradient_bytes", "until_open", "in_flight"})
_FILE_KEYS = {"file_version", "template"}
_TEMPLATE_KEYS = {
    "name", "version", "priority", "patience_ops", "requires", "forbids", "open", "anchor", "close",
    "learn", "is_close_inside_open", "is_anchor_proof",
}  # fmt: skip
_SYMBOL_KEYS = {"role", "op", "dtype", "min_bytes", "max_bytes", "count", "peer"}


def parse_template_file(document: Mapping[str, Any], path: str = "") -> TemplateFile:
    """The templates of a parsed TOML document.

    Raises InputError naming ``path`` and the place for an unknown key, version or word.
    """
    place = _Place(path, "file")
    place.check_keys(document, _FILE_KEYS)
    version = place.integer(document, "file_version", minimum=1)
    if version != TEMPLATE_FILE_VERSION:
        raise place.error(f"file_version {version} is not {TEMPLATE_FILE_VERSION}")
    entries = document.get("template", [])
    if not isinstance(entries, list) or not entries:
        raise place.error("no [[template]]")
    templates = tuple(_template(entry, place) for entry in entries)
    names = [template.name for template in templates]
    if len(set(names)) != len(names):
        raise place.error("two templates of one name")
    return TemplateFile(file_version=version, templates=templates)


class _Place:
    """Where in which file we read, for the error messages."""

    def __init__(self, path: str, where: str) -> None:
        self.path, self.where = path, where

    def at(self, where: str) -> _Place:
        return _Place(self.path, f"{self.where}: {where}")

    def error(self, message: str) -> InputError:
        return InputError(
            f"{self.where}: {message}",
            path=self.path,
            next_step="compare it with the shipped template files",
        )

    def check_keys(self, table: Any, allowed: set[str]) -> None:
        if not isinstance(table, Mapping):
            raise self.error(f"a table is expected, not {type(table).__name__}")
        if unknown := sorted(set(table) - allowed):
            raise self.error(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(allowed))}")

    def integer(
        self, table: Mapping[str, Any], key: str, default: int = ANY, minimum: int = 0
    ) -> int:
        if key not in table and minimum == 0:
            return default
        value = table.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.error(f"{key} must be a whole number of at least {minimum}")
        return value

    def flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false")
        return value

    def words(self, table: Mapping[str, Any], key: str, kind: type[_Member]) -> tuple[_Member, ...]:
        value = table.get(key, [])
        members = {member.name.lower(): member for member in kind}
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list):
            raise self.error(f"{key} must be a word or a list of words")
        for word in words:
            if not isinstance(word, str) or word.lower() not in members:
                raise self.error(f"{key}: unknown word {word!r}")
        return tuple(members[word.lower()] for word in words)


def _template(entry: Any, parent: _Place) -> Template:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name:
        raise parent.error("a template without a name")
    place = parent.at(f"template {name!r}")
    place.check_keys(entry, _TEMPLATE_KEYS)
    learn = entry.get("learn", "")
    if learn and learn not in LEARNERS:
        raise place.error(f"learn: unknown word {learn!r}")
    close = _alternatives(entry, "close", place)
    anchor = close if entry.get("anchor") == "close" else _alternatives(entry, "anchor", place)
    template = Template(
        name=name,
        version=place.integer(entry, "version", minimum=1),
        priority=place.integer(entry, "priority", default=0),
        patience_ops=place.integer(entry, "patience_ops", default=0),
        requires=_sequences(entry, "requires", place),
        forbids=_sequences(entry, "forbids", place),
        opens=_alternatives(entry, "open", place),
        anchors=anchor,
        closes=close,
        learn=learn,
        is_close_inside_open=place.flag(entry, "is_close_inside_open"),
        is_anchor_proof=place.flag(entry, "is_anchor_proof"),
    )
    if not template.opens:
        raise place.error("open is missing")
    if not learn and not template.closes and not template.anchors:
        raise place.error("neither close nor anchor: no step could end")
    return template


def _alternatives(entry: Mapping[str, Any], key: str, place: _Place) -> tuple[Sequence, ...]:
    return (_sequence(entry[key], place.at(key)),) if key in entry else ()


def _sequences(entry: Mapping[str, Any], key: str, place: _Place) -> tuple[Sequence, ...]:
    values = entry.get(key, [])
    if not isinstance(values, list):
        raise place.error(f"{key} must be a list")
    return tuple(
        _sequence([value] if isinstance(value, Mapping) else value, place.at(key))
        for value in values
    )


def _sequence(value: Any, place: _Place) -> Sequence:
    if not isinstance(value, list) or not value:
        raise place.error("a list of positions is expected")
    return tuple(_position(position, place) for position in value)


def _position(value: Any, place: _Place) -> Position:
    tables = value if isinstance(value, list) else [value]
    if not tables:
        raise place.error("an empty position")
    return tuple(_symbol(table, place) for table in tables)


def _symbol(table: Any, place: _Place) -> Symbol:
    place.check_keys(table, _SYMBOL_KEYS)
    peers = place.words(table, "peer", Peer)
    return Symbol(
        roles=place.words(table, "role", CommRole),
        ops=place.words(table, "op", Op),
        dtypes=place.words(table, "dtype", DType),
        min_bytes=place.integer(table, "min_bytes", default=0),
        max_bytes=place.integer(table, "max_bytes"),
        count=place.integer(table, "count"),
        peer=peers[0] if peers else Peer.ANY,
    )
