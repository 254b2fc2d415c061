"""Everything the checks judge by, gathered once from this machine and this environment."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from comminsight.capture.process import start_ticks
from comminsight.capture.stacks import StackSettings, stack_settings, take_stack
from comminsight.errors import InputError
from comminsight.model.hang import Stack
from comminsight.probe.elf import ElfFacts, read_elf
from comminsight.probe.folder import FolderFacts, look_at
from comminsight.probe.packages import (
    Found,
    loader_folders,
    named_on_path,
    nccl_versions,
    search_path,
    torch_versions,
)
from comminsight.probe.settings import MASK_VARIABLE, Unfit, unfit_settings
from comminsight.probe.trial import Trial, try_plugin

GLIBC = re.compile(r"glibc (\d+)\.(\d+)")
DEFAULT_DISABLE_FILE = "/run/comminsight.disable"
DEFAULT_PLUGIN = "libnccl-profiler.so"  # what NCCL loads when its variable is not set


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What to look at; ``python`` is the one that trains."""

    recorder_path: Path
    box_folder: Path
    spool: Path
    private_folder: Path | None = None  # above the default spool, where the recorder makes it
    python: str = sys.executable
    plugin: str = ""  # NCCL_PROFILER_PLUGIN
    is_plugin_foreign: bool = False  # it names another one than ours
    is_network: Callable[[Path], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The facts. ``elf`` is None where the library cannot be read, then ``elf_error`` says why."""

    recorder_path: str
    elf: ElfFacts | None
    elf_error: str = ""
    machine: str
    glibc: tuple[int, int]  # (0, 0): no glibc, or it does not tell
    is_disabled: bool = False
    disable_file: str = ""  # "" when it is not there
    plugin: str = ""
    is_plugin_foreign: bool = False
    is_plugin_there: bool = False  # what the variable names is a file that the loader finds
    default_plugin: str = ""
    mask: str = ""
    unfit: tuple[Unfit, ...] = ()
    box_folder: FolderFacts
    spool: FolderFacts
    private_folder: FolderFacts | None = None
    is_spool_on_network: bool = False
    is_network_allowed: bool = False
    open_files_limit: int
    stack: Stack
    torch: tuple[Found, ...] = ()
    nccl: tuple[Found, ...] = ()
    trial: Trial


def gather(places: Places, environment: Mapping[str, str]) -> MachineFacts:
    """The facts; takes some seconds, since the plugin is loaded and a stack is taken.

    Raises InputError when ``places.python`` cannot be asked.
    """
    elf, elf_error = library_facts(places.recorder_path)
    folders = search_path(places.python)
    ld_library_path = environment.get("LD_LIBRARY_PATH", "")
    disable_file = environment.get("COMMINSIGHT_DISABLE_FILE") or DEFAULT_DISABLE_FILE
    return MachineFacts(
        recorder_path=str(places.recorder_path),
        elf=elf,
        elf_error=elf_error,
        machine=platform.machine(),
        glibc=machine_glibc(),
        is_disabled=is_true(environment.get("COMMINSIGHT_DISABLE") or "0"),
        disable_file=disable_file if os.path.lexists(disable_file) else "",
        plugin=places.plugin,
        is_plugin_foreign=places.is_plugin_foreign,
        is_plugin_there=is_found(places.plugin, places.recorder_path.name, ld_library_path),
        default_plugin=named_on_path(DEFAULT_PLUGIN, ld_library_path),
        mask=environment.get(MASK_VARIABLE, ""),
        unfit=unfit_settings(environment),
        box_folder=look_at(places.box_folder),
        spool=look_at(places.spool, follows_links=True),
        private_folder=look_at(places.private_folder) if places.private_folder else None,
        is_spool_on_network=places.is_network(places.spool),
        is_network_allowed=is_true(environment.get("COMMINSIGHT_ALLOW_NETWORK_SPOOL") or "0"),
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        stack=stack_of_a_child(stack_settings(environment)),
        torch=torch_versions(folders),
        nccl=nccl_versions(folders, loader_folders(ld_library_path)),
        trial=Trial(failure=elf_error)
        if elf is None
        else try_plugin(places.recorder_path, environment),
    )


def library_facts(recorder_path: Path) -> tuple[ElfFacts | None, str]:
    """(facts, "") or (None, why not)."""
    try:
        return read_elf(recorder_path.read_bytes(), str(recorder_path)), ""
    except OSError as error:
        return None, error.strerror or str(error)
    except InputError as error:
        return None, str(error)


def is_found(plugin: str, library_name: str, ld_library_path: str) -> bool:
    """Whether the value of NCCL_PROFILER_PLUGIN leads to a file: its path, or ours by name."""
    return (
        Path(plugin).is_file()
        if "/" in plugin
        else bool(named_on_path(library_name, ld_library_path))
    )


def machine_glibc() -> tuple[int, int]:
    """The glibc of this process, (0, 0) on another C library."""
    try:
        match = GLIBC.match(os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (OSError, ValueError):
        match = None
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_true(value: str) -> bool:
    """As the recorder reads a switch: everything but 0, false and no."""
    return value.lower() not in {"0", "false", "no"}


def stack_of_a_child(settings: StackSettings) -> Stack:
    """What a stack dump of a process beside this one gives: the right that a hang will need."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None  # noqa: S101 - asked for above
        child.stdout.readline()
        try:
            return take_stack(child.pid, settings, start_ticks=start_ticks(child.pid))
        finally:
            child.kill()
