"""Which torch and NCCL are here, from package metadata and file names; nothing is imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from comminsight.errors import InputError

NCCL_PACKAGES = "nvidia_nccl_cu*-*"
NCCL_FILE = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)")
SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/local/lib", "/usr/local/cuda/lib64",
)  # fmt: skip
PYTHON_DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Found:
    """A version and where it was seen."""

    version: str
    place: str


def search_path(python: str) -> tuple[str, ...]:
    """The folders in which ``python`` looks for packages.

    Raises InputError when it does not start or does not answer.
    """
    if python == sys.executable:
        return tuple(sys.path)
    command = [python, "-c", "import json, sys; print(json.dumps(sys.path))"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=PYTHON_DEADLINE_S, text=True
        )
        return tuple(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(
            f"cannot ask this Python for its packages: {error}",
            code="python_silent",
            reason=str(error),
            path=python,
            next_step="give the interpreter of the training environment with --python",
        ) from error


def torch_versions(folders: Sequence[str]) -> tuple[Found, ...]:
    """Every torch installed in ``folders``, the one that is imported first."""
    return tuple(_packages(folders, "torch-*"))


def nccl_versions(folders: Sequence[str], library_folders: Iterable[str]) -> tuple[Found, ...]:
    """NCCL as installed by packages in ``folders``, then as a file in ``library_folders``."""
    return (*_packages(folders, NCCL_PACKAGES), *_libraries(library_folders))


def loader_folders(ld_library_path: str) -> tuple[str, ...]:
    """The folders of LD_LIBRARY_PATH, then the usual ones of the system."""
    return tuple(dict.fromkeys([*filter(None, ld_library_path.split(":")), *SYSTEM_FOLDERS]))


def named_on_path(name: str, ld_library_path: str) -> str:
    """The first file of this name that the loader would find, "" when there is none."""
    paths = (Path(folder) / name for folder in loader_folders(ld_library_path))
    return next((str(path) for path in paths if path.is_file()), "")


def _packages(folders: Sequence[str], names: str) -> Iterator[Found]:
    """By the names of metadata folders; a package in two folders counts where it is first."""
    seen = set()
    for folder in folders:
        for path in sorted(Path(folder or ".").glob(f"{names}.dist-info")):
            name, _, version = path.name.removesuffix(".dist-info").partition("-")
            if name not in seen:
                seen.add(name)
                yield Found(version, folder or ".")


def _libraries(folders: Iterable[str]) -> Iterator[Found]:
    seen = set()
    for folder in folders:
        path = Path(folder) / "libnccl.so.2"
        target = path.resolve() if path.exists() else path
        if path.exists() and target not in seen:
            seen.add(target)
            match = NCCL_FILE.fullmatch(target.name)
            yield Found(match[1] if match else "", str(target))
