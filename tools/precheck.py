"""Say what the machine lacks, with the one line that installs it; exit 2 when it lacks any."""

from __future__ import annotations

import importlib.util
import shutil
import sys


def main() -> int:
    """Exit code 2 and the apt line, or 0."""
    missing = []
    if sys.version_info < (3, 11):  # noqa: UP036 - run by whatever python3 is there
        missing.append("python3.11")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        missing.append("python3-venv")
    if shutil.which("g++") is None:
        missing.append("g++")
    if shutil.which("make") is None:
        missing.append("make")
    if missing:
        print(f"missing: {' '.join(missing)}", file=sys.stderr)
        print(f"  apt-get update && apt-get install -y {' '.join(missing)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
