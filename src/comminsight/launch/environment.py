"""The variables that turn recording on in a process and in all it starts.

Python reaches the start-up hook through a ``sitecustomize`` on PYTHONPATH, NCCL reaches the
recorder through its plugin variable; neither needs the other.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from comminsight.errors import InputError, UsageError
from comminsight.launch.plugin import (
    LIBRARY_NAME,
    PLUGIN_NAME,
    PLUGIN_VARIABLE,
    plugin_value,
    put_before,
)
from comminsight.pipeline.native_folder import native_folder

OVERDUE_S = (0.05, 86_400.0)  # the recorder clamps to these, and the report must know the limit
SAFE_WINDOW_MS = (10.0, 600_000.0)
RUN_ID = re.compile(r"[\w@+=:,.-]{1,128}")  # it becomes the name of folders
# the interpreter does not let a process write its stacks on these, or nobody can catch them
UNFIT_SIGNALS = frozenset({"KILL", "STOP", "SEGV", "FPE", "ABRT", "IOT", "BUS", "ILL"})


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

    Raises UsageError naming the value that would be passed over in silence otherwise.
    """
    default = RecordingOptions()
    window_ms = number(given, "COMMINSIGHT_SAFE_WINDOW_MS", default.safe_window_ms, SAFE_WINDOW_MS)
    limit_s = number(given, "COMMINSIGHT_OVERDUE_S", default.overdue_limit_s, OVERDUE_S)
    if overdue_s is not None:
        limit_s = within(overdue_s, f"--overdue {overdue_s:g}", OVERDUE_S)
    return RecordingOptions(
        overdue_limit_s=limit_s,
        safe_window_ms=round(window_ms),
        group_map=checked_map(group_map or given.get("COMMINSIGHT_GROUP_MAP", "")),
        stack_signal=checked_signal(stack_signal or given.get("COMMINSIGHT_STACK_SIGNAL", "")),
    )


def number(
    given: Mapping[str, str], name: str, default: float, limits: tuple[float, float]
) -> float:
    """The number in a variable, ``default`` where it is not set."""
    text = given.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    return within(value, f"{name}={text}", limits)


def within(value: float, said: str, limits: tuple[float, float]) -> float:
    """``value``; raises UsageError showing what was ``said`` when it is not in ``limits``."""
    low, high = limits
    if not low <= value <= high:
        raise UsageError(
            f"{said} is not a number from {low:g} to {high:g}",
            code="not_within", said=said, low=f"{low:g}", high=f"{high:g}",
        )  # fmt: skip
    return value


def checked_map(text: str) -> str:
    """A group map of which every part will be used."""
    for part in filter(str.strip, text.split(";")):
        name, _, desc = part.partition("=")
        if not (name.strip() and desc.strip()):
            raise UsageError(
                f"group map: {part.strip()!r} is not NAME=ROLE",
                code="bad_group_map",
                text=part.strip(),
                next_step='--group-map "NAME=ROLE;NAME=ROLE", such as "1=tp;2=dp"',
            )
    return text


def checked_signal(text: str) -> str:
    """A signal on which a process can write its stacks, "" for none."""
    names = {str(int(s)): s.name for s in signal.Signals}
    name = names.get(text, text).upper().removeprefix("SIG")
    if text and (f"SIG{name}" not in signal.Signals.__members__ or name in UNFIT_SIGNALS):
        raise UsageError(
            f"stack signal: {text!r} is no signal that a process can write its stacks on",
            code="bad_signal",
            text=text,
            next_step="--stack-signal USR2, or another name or number that the job does not use",
        )
    return text


def checked_run_id(text: str) -> str:
    """A name that folders can have."""
    if not RUN_ID.fullmatch(text) or not text.strip("."):
        raise UsageError(
            f"run id: {text!r} cannot be the name of a folder",
            code="bad_run_id",
            text=text,
            next_step="use up to 128 letters, digits and the characters @ + = : , . _ -",
        )
    return text


def own_folder() -> Path:
    """The folder of this user's own, in which the recorder puts its spool unless told otherwise."""
    return Path("/tmp") / f"comminsight-{os.geteuid()}"  # noqa: S108 - 0700, owner checked


def native_library() -> Path:
    """Path of the recorder library.

    Raises InputError when it is not installed with the package.
    """
    path = native_folder() / LIBRARY_NAME
    if not path.is_file():
        raise InputError(
            "the native recorder is not installed",
            code="no_library",
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
            code="no_inject",
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
    recorder_path = native_library()
    environment = dict(base)
    environment["PYTHONPATH"] = put_before(inject_package() / "site", base.get("PYTHONPATH", ""))
    environment["COMMINSIGHT_INJECT"] = "1"
    environment["COMMINSIGHT_LIBRARY"] = str(recorder_path)
    environment["COMMINSIGHT_RUN_ID"] = run_id
    environment["COMMINSIGHT_SPOOL"] = str(spool)
    environment["COMMINSIGHT_OVERDUE_S"] = f"{options.overdue_limit_s:g}"
    environment["COMMINSIGHT_SAFE_WINDOW_MS"] = str(options.safe_window_ms)
    if not base.get(PLUGIN_VARIABLE):
        environment[PLUGIN_VARIABLE] = plugin_value(recorder_path)
    if environment[PLUGIN_VARIABLE] == PLUGIN_NAME:
        paths = base.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = put_before(recorder_path.parent, paths)
    if options.group_map:
        environment["COMMINSIGHT_GROUP_MAP"] = options.group_map
    if options.stack_signal:
        environment["COMMINSIGHT_STACK_SIGNAL"] = options.stack_signal
        environment["COMMINSIGHT_STACK_DIR"] = str(spool)
    return environment
