"""How NCCL is told of the recorder: its plugin variable, and what a user put there himself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PLUGIN_VARIABLE = "NCCL_PROFILER_PLUGIN"
LIBRARY_NAME = "libnccl-profiler-comminsight.so"
PLUGIN_NAME = "comminsight"  # NCCL makes the library's name of it, on every release
MAX_VALUE_CHARS = 255  # NCCL cuts the variable there


def plugin_value(recorder_path: Path) -> str:
    """What NCCL_PROFILER_PLUGIN is set to: the path, or the name where the path is too long."""
    path = str(recorder_path)
    return path if len(path.encode()) <= MAX_VALUE_CHARS else PLUGIN_NAME


def foreign_plugin(environment: Mapping[str, str]) -> str:
    """The plugin that the environment names and that is not ours; "" when there is none."""
    value = environment.get(PLUGIN_VARIABLE, "")
    is_ours = value in {PLUGIN_NAME, LIBRARY_NAME} or Path(value).name == LIBRARY_NAME
    return "" if is_ours else value


def put_before(folder: Path, paths: str) -> str:
    """``folder`` and then the folders of a colon-separated list, each once."""
    return os.pathsep.join(dict.fromkeys([str(folder), *filter(None, paths.split(os.pathsep))]))
