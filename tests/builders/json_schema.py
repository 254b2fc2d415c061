"""The part of JSON schema that our published schemas use; an unknown keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip
ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "default", "version"}
KNOWN = ANNOTATIONS | {
    "$ref", "anyOf", "enum", "type", "properties", "required", "items", "additionalProperties",
    "pattern",
}  # fmt: skip


def violations(value: Any, schema: Schema) -> list[str]:
    """Where ``value`` differs from the schema: ``path: what``; empty when it is valid."""
    return list(_violations(value, schema, schema.get("$defs", {}), "$"))


def _violations(value: Any, part: Schema, defs: Schema, path: str) -> Iterator[str]:
    assert set(part) <= KNOWN, f"{path}: unknown keywords {set(part) - KNOWN}"
    if "$ref" in part:
        yield from _violations(value, defs[part["$ref"].rpartition("/")[2]], defs, path)
    if "anyOf" in part and all(list(_violations(value, p, defs, path)) for p in part["anyOf"]):
        yield f"{path}: none of anyOf"
    if "enum" in part and value not in part["enum"]:
        yield f"{path}: {value!r} is not in the enumeration"
    if "type" in part and not _is_a(value, part["type"]):
        yield f"{path}: {value!r} is no {part['type']}"
    if "pattern" in part and not re.search(part["pattern"], value):
        yield f"{path}: {value!r} does not match"
    yield from _inside(value, part, defs, path)


def _inside(value: Any, part: Schema, defs: Schema, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{path}: lacks {key}" for key in part.get("required", ()) if key not in value)
        for key, inner in value.items():
            rule = part.get("properties", {}).get(key, part.get("additionalProperties", {}))
            if "properties" in part and rule == {}:
                yield f"{path}: {key} is not published"
            yield from _violations(inner, rule, defs, f"{path}.{key}")
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _violations(inner, part.get("items", {}), defs, f"{path}[{number}]")


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])
