"""Real jobs under recording, for the integration tests: environment, pool, skip reasons."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.launch.environment import RecordingOptions, native_library, recording_environment

FULL = bool(os.environ.get("COMMINSIGHT_FULL"))


def skip_without_real_jobs() -> None:
    """Skip with the reason that this machine cannot run recorded jobs."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    try:
        native_library()
    except InputError as error:
        pytest.skip(f"no recorder: {error}")


def pool_environment(folder: Path, **options: float) -> dict[str, str]:
    """The environment of a recorded pool; every episode sets its own run id and spool."""
    return recording_environment(
        os.environ, run_id="pool", spool=folder, options=RecordingOptions(**options)
    )
