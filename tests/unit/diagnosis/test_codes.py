from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import comminsight
from comminsight.diagnosis import codes

SRC = Path(comminsight.__file__).parent
TABLES = [
    import_module(f"comminsight.diagnosis.{path.stem}")
    for path in sorted((SRC / "diagnosis").glob("codes*.py"))
]


def constants() -> list[tuple[str, str]]:
    """(name, code) of every constant."""
    return [
        (name, code)
        for table in TABLES
        for name, code in vars(table).items()
        if name.isupper() and isinstance(code, str)
    ]


def test_every_code_is_told_by_some_rule() -> None:
    paths = [path for path in SRC.rglob("*.py") if not path.stem.startswith("codes")]
    words = {word for path in paths for word in re.findall(r"[\w.]+", path.read_text("utf-8"))}
    words |= {part for word in words for part in word.split(".")}
    told = {code for name, code in constants() if words & {name, code}}
    assert sorted(set(codes.CODES) - told) == []


def test_no_name_and_no_code_stands_twice() -> None:
    names, told = zip(*constants(), strict=True)
    assert len(names) == len(set(names))
    assert len(told) == len(set(told))
