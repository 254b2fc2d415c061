"""A document as TOML: what ``tomllib`` reads back as the same document.

Top-level tables become ``[key]``, lists of tables ``[[key]]``; everything deeper stands inline.
A list that does not fit on a line has one element per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

TomlValue = str | bool | int | float | Sequence["TomlValue"] | Mapping[str, "TomlValue"]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE_CHARS = 100
_INDENT = "  "


def write_toml(document: Mapping[str, TomlValue]) -> str:
    """The text of a document. Raises TypeError for a value that TOML does not have."""
    tables = {key: _tables(value) for key, value in document.items()}
    blocks = [_block({k: v for k, v in document.items() if not tables[k]})]
    for key, entries in tables.items():
        is_list = not isinstance(document[key], Mapping)
        header = f"[[{_key(key)}]]\n" if is_list else f"[{_key(key)}]\n"
        blocks += [header + _block(entry) for entry in entries]
    return "\n".join(block for block in blocks if block)


def _tables(value: TomlValue) -> list[Mapping[str, TomlValue]]:
    """The tables that get a header of their own; empty for anything else."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, str | int | float) or not value:
        return []
    entries = [entry for entry in value if isinstance(entry, Mapping)]
    return entries if len(entries) == len(value) else []


def _block(table: Mapping[str, TomlValue]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: TomlValue, depth: int = 0) -> str:
    flat = _inline(value)
    is_list = not isinstance(value, str | bool | int | float | Mapping)
    if not is_list or len(flat) + len(_INDENT) * depth <= _LINE_CHARS - 20 * (depth == 0):
        return flat
    assert isinstance(value, Sequence)  # noqa: S101 - for the type checker
    inner = _INDENT * (depth + 1)
    lines = "".join(f"{inner}{_value(entry, depth + 1)},\n" for entry in value)
    return f"[\n{lines}{_INDENT * depth}]"


def _inline(value: TomlValue) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
