"""The variables that turn recording on in a process and in all it starts.

Python reaches the start-up hook through a ``sitecustomize`` on PYTHONPATH, NCCL reaches the
recorder through its plugin variable; neither needs the other.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import comminsight
from comminsight.errors import InputError, UsageError

LIBRARY_NAME = "libnccl-profiler-comminsight.so"


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """What ``comminsight run`` lets a user choose about recording."""

    overdue_limit_s: float = 60.0
    safe_window_ms: int = 2000
    group_map: str = ""
    stack_signal: str = ""


def recording_options(
    given: Mapping[str, str], *, overdue_s: float | None, group_map: str, stack_signal: str
) -> RecordingOptions:
    """What was asked for on the command line, else in the environment, else the defaults.

    Raises UsageError naming a variable that is no positive number.
    """
    default = RecordingOptions()
    window_ms = positive(given, "COMMINSIGHT_SAFE_WINDOW_MS", default.safe_window_ms)
    limit_s = positive(given, "COMMINSIGHT_OVERDUE_S", default.overdue_limit_s)
    return RecordingOptions(
        overdue_limit_s=limit_s if overdue_s is None else overdue_s,
        safe_window_ms=round(window_ms),
        group_map=group_map or given.get("COMMINSIGHT_GROUP_MAP", ""),
        stack_signal=stack_signal or given.get("COMMINSIGHT_STACK_SIGNAL", ""),
    )


def positive(given: Mapping[str, str], name: str, default: float) -> float:
    """The number in a variable, ``default`` where it is not set."""
    text = given.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"{name}={text} is not a number above 0")
    return value


def native_library() -> Path:
    """Path of the recorder library.

    Raises InputError when it is not installed with the package.
    """
    folder = os.environ.get("COMMINSIGHT_NATIVE_DIR", "")
    path = Path(folder or Path(comminsight.__file__).parent / "_native") / LIBRARY_NAME
    if not path.is_file():
        raise InputError(
            "the native recorder is not installed",
            path=str(path),
            next_step="run `make native`, or reinstall the wheel for this platform",
        )
    return path


def inject_package() -> Path:
    """Folder of the package that runs at the start of training processes."""
    spec = importlib.util.find_spec("comminsight_inject")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "the package comminsight_inject is not installed",
            next_step="reinstall comminsight: both packages are in one wheel",
        )
    return Path(next(iter(spec.submodule_search_locations)))


def recording_environment(
    base: Mapping[str, str], *, run_id: str, spool: Path, options: RecordingOptions
) -> dict[str, str]:
    """``base`` with recording switched on for this run; what the user set himself is kept.

    Only the folder with ``sitecustomize`` goes onto PYTHONPATH: it loads its package by path, so
    that nothing installed beside it shadows a package of the job.
    """
    library = native_library()
    environment = dict(base)
    paths = [
        str(inject_package() / "site"),
        *filter(None, base.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environment["COMMINSIGHT_INJECT"] = "1"
    environment["COMMINSIGHT_LIBRARY"] = str(library)
    environment["COMMINSIGHT_RUN_ID"] = run_id
    environment["COMMINSIGHT_SPOOL"] = str(spool)
    environment["COMMINSIGHT_OVERDUE_S"] = f"{options.overdue_limit_s:g}"
    environment["COMMINSIGHT_SAFE_WINDOW_MS"] = str(options.safe_window_ms)
    environment.setdefault("NCCL_PROFILER_PLUGIN", str(library))
    if options.group_map:
        environment["COMMINSIGHT_GROUP_MAP"] = options.group_map
    if options.stack_signal:
        environment["COMMINSIGHT_STACK_SIGNAL"] = options.stack_signal
        environment["COMMINSIGHT_STACK_DIR"] = str(spool)
    return environment
