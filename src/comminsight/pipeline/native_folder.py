"""Where the native libraries and programs are."""

from __future__ import annotations

import os
from pathlib import Path

import comminsight


def native_folder() -> Path:
    """Where the native libraries are, or should be."""
    given = os.environ.get("COMMINSIGHT_NATIVE_DIR", "")
    return Path(given) if given else Path(comminsight.__file__).parent / "_native"
