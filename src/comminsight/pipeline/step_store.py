"""Step summaries on disk: JSON lines, one file per session, rebuilt at will."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from comminsight.model.step import StepSummary
from comminsight.pipeline.layout import RunPaths, unwritable_run, write_whole


def write_steps(paths: RunPaths, steps: Mapping[str, tuple[StepSummary, ...]]) -> Path:
    """The folder written to; every file is replaced in one step.

    Raises InputError when it cannot be written.
    """
    try:
        paths.steps.mkdir(exist_ok=True)
        for session_id, own in sorted(steps.items()):
            path = paths.steps / f"{session_id}.jsonl"
            write_whole(path, b"".join(msgspec.json.encode(step) + b"\n" for step in own))
    except OSError as error:
        raise unwritable_run(paths.steps, error) from error
    return paths.steps
