"""fake_nccl with scripts that stand in the test, and with plugins that are not ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.native.door import LIBRARY, ROOT
from tests.unit.nccl.scenes import PATIENCE_S, PROGRAM, environment, read_log

PLUGINS = ROOT / "build/native/native/tests/fake_nccl"
NULL = PLUGINS / "libnccl-profiler-null.so"
OLD = PLUGINS / "libnccl-profiler-old.so"  # exports v4 and v5 only
FORGETFUL = PLUGINS / "libnccl-profiler-forgetful.so"  # leaves handles unwritten

needs_plugins = pytest.mark.skipif(
    not (PROGRAM.exists() and NULL.exists() and LIBRARY.exists()),
    reason="native programs are not built: make native",
)


def run_text(
    folder: Path, text: str, *options: str, plugin: Path | str = NULL, **env: str
) -> subprocess.CompletedProcess[str]:
    """The script ``text`` played to its end; its log stands in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script.txt"
    script.write_text(text)
    command = [PROGRAM, script, "--log", folder / "log.jsonl", "--plugin", plugin, *options]
    return subprocess.run(
        list(map(str, command)), env=environment(folder, **env), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def log_of(folder: Path, event: str) -> list[dict]:
    """Lines of one kind of what was played there."""
    return [line for line in read_log(folder / "log.jsonl") if line["event"] == event]


def probe(
    folder: Path, release: str, value: str | None, *, where: Path | None = None
) -> dict[str, object]:
    """What ``--probe`` tells when ``NCCL_PROFILER_PLUGIN`` is ``value`` (None: not set) and the
    loader looks in ``where``."""
    env = environment(folder)
    env.pop("NCCL_PROFILER_PLUGIN")
    if value is not None:
        env["NCCL_PROFILER_PLUGIN"] = value
    if where is not None:
        env["LD_LIBRARY_PATH"] = str(where) + os.pathsep + os.environ.get("LD_LIBRARY_PATH", "")
    done = subprocess.run(
        [str(PROGRAM), "--probe", "--release", release], env=env,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    told: dict[str, object] = json.loads(done.stdout)
    return told | {"exit_code": done.returncode}
