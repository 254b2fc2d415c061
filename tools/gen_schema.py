"""Write ``docs/schema/*.json`` from the Structs of the documents; ``--check`` fails on drift."""

from __future__ import annotations

import sys
from pathlib import Path

from comminsight.report.json_form import SCHEMAS, schema_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schema"


def main() -> int:
    """Exit code 1 when ``--check`` finds a committed schema different from the code."""
    drifted = [name for name in SCHEMAS if is_drifted(name, is_check="--check" in sys.argv)]
    for name in drifted:
        print(f"docs/schema/{name}.json has drifted: run PYTHONPATH=src python tools/gen_schema.py")
    return int(bool(drifted))


def is_drifted(name: str, *, is_check: bool) -> bool:
    """Whether the file differs from the code; without ``is_check`` it is written anew."""
    path, text = FOLDER / f"{name}.json", schema_text(name)
    if is_check:
        return not path.exists() or path.read_text() != text
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return False


if __name__ == "__main__":
    sys.exit(main())
