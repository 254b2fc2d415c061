"""Reading a template file: the parsed document becomes templates, or an error with file and line.

The caller reads the text and parses the TOML; the text serves to say where a fault stands. What a
file holds is described in ``template``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from comminsight.errors import InputError
from comminsight.model.ops import CommRole, DType, Op
from comminsight.semantics.template import (
    ANY,
    TEMPLATE_FILE_VERSION,
    GroupRule,
    Peer,
    Position,
    Sequence,
    Symbol,
    Template,
    TemplateFile,
    Topology,
)
from comminsight.semantics.template_check import faults
from comminsight.semantics.template_lines import FILE, SourceLines

_Member = TypeVar("_Member", bound=Enum)

MAX_INTEGER = 1 << 62  # more than any op has bytes, and what compares with it fits 64 bits
LEARNERS = frozenset({"gradient_bytes", "until_open", "in_flight", "norm"})
_FILE_KEYS = {"file_version", "template"}
_TEMPLATE_KEYS = {
    "name", "version", "priority", "patience_ops", "topology", "requires", "forbids",
    "open", "anchor", "close", "work", "learn", "is_close_inside_open", "is_anchor_proof",
    "is_refuted_by_pauses", "is_iteration",
}  # fmt: skip
_TOPOLOGY_KEYS = {"min_world", "max_world", "groups"}
_GROUP_KEYS = {"role", "min_size", "max_size"}
_SYMBOL_KEYS = {"role", "op", "dtype", "min_bytes", "max_bytes", "count", "peer"}


def parse_template_file(
    document: Mapping[str, Any], path: str = "", text: str = ""
) -> TemplateFile:
    """The templates of a parsed TOML document.

    Raises InputError naming ``path``, the line in ``text`` and the place for an unknown key,
    version or word, and for a template that could never win or never end a step.
    """
    place = _Place(path, SourceLines(text))
    place.check_keys(document, _FILE_KEYS)
    version = place.integer(document, "file_version", minimum=1)
    if version != TEMPLATE_FILE_VERSION:
        raise place.key("file_version").error(
            f"file_version {version} is not {TEMPLATE_FILE_VERSION}",
            f"write file_version = {TEMPLATE_FILE_VERSION}, or read it with the release it is for",
        )
    entries = document.get("template", [])
    if not isinstance(entries, list) or not entries:
        raise place.error("no [[template]]", "give at least one; see docs/templates.md")
    templates = []
    for number, entry in enumerate(entries):
        own = place.template(number, entry)
        templates.append(_checked(_template(entry, own), own))
        if [t.name for t in templates].count(templates[-1].name) > 1:
            raise own.key("name").error("two templates of one name", "give it another name")
    lines = tuple(
        place.template(number, entry).key("priority").line for number, entry in enumerate(entries)
    )
    return TemplateFile(file_version=version, templates=tuple(templates), lines=lines)


class _Place:
    """Where in which file we read, for the error messages."""

    def __init__(
        self, path: str, lines: SourceLines, number: int = FILE, name: str = "file",
        keys: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._path, self._lines = path, lines
        self._number, self._name, self._keys = number, name, keys

    @property
    def line(self) -> int:
        """The line of the place, 0 for unknown."""
        return self._lines.of(self._number, self._keys)

    def template(self, number: int, entry: Any) -> _Place:
        """The place of one template."""
        name = entry.get("name") if isinstance(entry, Mapping) else None
        label = f"template {name!r}" if name else f"template {number + 1}"
        return _Place(self._path, self._lines, number, label)

    def key(self, key: str) -> _Place:
        """A key inside this place."""
        return _Place(self._path, self._lines, self._number, self._name, (*self._keys, key))

    def error(self, message: str, next_step: str = "", word: Any = None) -> InputError:
        """The error to raise; ``word`` is the value at fault."""
        line = self._lines.of(self._number, self._keys, word)
        where = ": ".join((self._name, *self._keys[:1]))
        return InputError(
            f"{where}: {message}",
            path=f"{self._path}:{line}" if line else self._path,
            next_step=next_step or "compare it with docs/templates.md",
        )

    def check_keys(self, table: Any, allowed: set[str]) -> None:
        if not isinstance(table, Mapping):
            raise self.error(f"a table is expected, not {type(table).__name__}")
        if unknown := sorted(set(table) - allowed):
            raise self.key(unknown[0]).at_parent(
                f"unknown key {unknown[0]!r}", f"known: {', '.join(sorted(allowed))}"
            )

    def at_parent(self, message: str, next_step: str) -> InputError:
        """The error at this key's line, named by what the key stands in."""
        line = self.line
        where = ": ".join((self._name, *self._keys[:-1][:1]))
        path = f"{self._path}:{line}" if line else self._path
        return InputError(f"{where}: {message}", path=path, next_step=next_step)

    def integer(
        self, table: Mapping[str, Any], key: str, default: int = ANY, minimum: int = 0
    ) -> int:
        if key not in table and minimum == 0:
            return default
        value = table.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.key(key).error(
                f"{key} must be a whole number of at least {minimum}",
                f"write {key} = {minimum} or more" if key in table else f"add {key} = {minimum}",
                word=value,
            )
        if value > MAX_INTEGER:
            raise self.key(key).error(
                f"{key} must be at most 2^62 = {MAX_INTEGER}", f"leave out {key}", word=value
            )
        return value

    def flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self.key(key).error(f"{key} must be true or false")
        return value

    def words(self, table: Mapping[str, Any], key: str, kind: type[_Member]) -> tuple[_Member, ...]:
        value = table.get(key, [])
        members = {member.name.lower(): member for member in kind}
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list):
            raise self.key(key).error(f"{key} must be a word or a list of words")
        for word in words:
            if not isinstance(word, str) or word.lower() not in members:
                raise self.key(key).error(
                    f"{key}: unknown word {word!r}", f"known: {', '.join(members)}", word=word
                )
        return tuple(members[word.lower()] for word in words)


def _checked(template: Template, place: _Place) -> Template:
    for fault in faults(template):
        raise place.key(fault.key).error(fault.message, fault.next_step)
    return template


def _template(entry: Any, place: _Place) -> Template:
    if not isinstance(entry, Mapping):
        raise place.error(f"a table is expected, not {type(entry).__name__}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise place.error("a template without a name", 'add name = "..."')
    place.check_keys(entry, _TEMPLATE_KEYS)
    learn = entry.get("learn", "")
    if learn and learn not in LEARNERS:
        known = ", ".join(sorted(LEARNERS))
        raise place.key("learn").error(f"unknown word {learn!r}", f"known: {known}", word=learn)
    close = _alternatives(entry, "close", place)
    anchor = close if entry.get("anchor") == "close" else _alternatives(entry, "anchor", place)
    template = Template(
        name=name,
        version=place.integer(entry, "version", minimum=1),
        priority=place.integer(entry, "priority", default=0),
        patience_ops=place.integer(entry, "patience_ops", default=0),
        topology=_topology(entry.get("topology", {}), place.key("topology")),
        requires=_sequences(entry, "requires", place),
        forbids=_sequences(entry, "forbids", place),
        opens=_alternatives(entry, "open", place),
        anchors=anchor,
        closes=close,
        works=_alternatives(entry, "work", place),
        learn=learn,
        is_close_inside_open=place.flag(entry, "is_close_inside_open"),
        is_anchor_proof=place.flag(entry, "is_anchor_proof"),
        is_refuted_by_pauses=place.flag(entry, "is_refuted_by_pauses"),
        is_iteration=place.flag(entry, "is_iteration"),
    )
    if not template.opens:
        raise place.error("open is missing", "say which ops begin a step: open = [...]")
    if not learn and not template.closes and not template.anchors:
        raise place.error("neither close nor anchor: no step could end", "add close = [...]")
    return template


def _alternatives(entry: Mapping[str, Any], key: str, place: _Place) -> tuple[Sequence, ...]:
    return (_sequence(entry[key], place.key(key)),) if key in entry else ()


def _topology(table: Any, place: _Place) -> Topology:
    place.check_keys(table, _TOPOLOGY_KEYS)
    groups = table.get("groups", [])
    if not isinstance(groups, list):
        raise place.key("groups").error("groups must be a list of tables")
    least, most = _bounds(table, "world", place)
    return Topology(
        min_world=least, max_world=most, groups=tuple(_group(one, place) for one in groups)
    )


def _group(table: Any, place: _Place) -> GroupRule:
    place.check_keys(table, _GROUP_KEYS)
    roles = place.words(table, "role", CommRole)
    if len(roles) != 1:
        raise place.error("a group needs one role", 'write { role = "PP", min_size = 2 }')
    least, most = _bounds(table, "size", place)
    return GroupRule(roles[0], least, most)


def _bounds(table: Mapping[str, Any], what: str, place: _Place) -> tuple[int, int]:
    least = place.integer(table, f"min_{what}", default=1)
    most = place.integer(table, f"max_{what}")
    if ANY < most < least:
        raise place.key(f"max_{what}").error(
            f"min_{what} exceeds max_{what}: no job can fit", f"write max_{what} = {least} or more"
        )
    return least, most


def _sequences(entry: Mapping[str, Any], key: str, place: _Place) -> tuple[Sequence, ...]:
    values = entry.get(key, [])
    if not isinstance(values, list):
        raise place.key(key).error(f"{key} must be a list")
    return tuple(
        _sequence([value] if isinstance(value, Mapping) else value, place.key(key))
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
