"""Write ``docs/schema/run-report.json`` from the report Struct; ``--check`` fails on drift."""

from __future__ import annotations

import sys
from pathlib import Path

from comminsight.report.json_form import schema_text

TARGET = Path(__file__).resolve().parents[1] / "docs" / "schema" / "run-report.json"


def main() -> int:
    """Exit code 1 when ``--check`` finds the committed schema different from the code."""
    text = schema_text()
    if "--check" not in sys.argv:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print("docs/schema/run-report.json has drifted: run PYTHONPATH=src python tools/gen_schema.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
