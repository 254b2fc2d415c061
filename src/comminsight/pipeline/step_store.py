"""Step summaries on disk: JSON lines, one file per session, rebuilt at will."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from comminsight.errors import InputError
from comminsight.model.step import StepSummary
from comminsight.pipeline.layout import RunPaths


def write_steps(paths: RunPaths, steps: Mapping[str, tuple[StepSummary, ...]]) -> Path:
    """The folder written to; every file is replaced in one step.

    Raises InputError when it cannot be written.
    """
    try:
        paths.steps.mkdir(exist_ok=True)
        for session_id, own in sorted(steps.items()):
            path = paths.steps / f"{session_id}.jsonl"
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in own))
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            code="unwritable_run",
            reason=error.strerror,
            path=str(paths.steps),
            next_step="copy the run to a place where you may write, and rebuild it there",
        ) from error
    return paths.steps
