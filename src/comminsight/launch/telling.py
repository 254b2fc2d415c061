"""What ``comminsight run`` says when the job has ended: the verdict in one line, and what is next.

The verdict comes from a process of its own with a deadline: neither its time nor its faults are
the job's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from comminsight.launch.reaction import say
from comminsight.pipeline.layout import RunPaths
from comminsight.report.catalogue import Catalogue

MAX_BYTES = 64 << 20
DEADLINE_S = 3.0
JUDGE = "comminsight.launch.judging"  # by name: it imports all that reports need


def tell_end(paths: RunPaths, words: Catalogue, code: int, told: str = "") -> None:
    """A line on the job's communication, where there is more to say than was ``told`` while it ran,
    and how it ended."""
    if not any(any(folder.iterdir()) for folder in (paths.segments, paths.boxes)):
        say(words.text("run.no_group"))
    elif (line := verdict_line(paths, words.lang, is_bad_end=code != 0)) not in {"", told}:
        say(line)
    say(words.text("run.ended", code=code, out=str(paths.root)))


def verdict_line(paths: RunPaths, lang: str, *, is_bad_end: bool) -> str:
    """The verdict's sentence; "" when all is well, the run is large or the answer takes long."""
    if stored_bytes(paths.segments) > MAX_BYTES:
        return ""
    command = [sys.executable, "-P", "-m", JUDGE, str(paths.root), lang, str(int(is_bad_end))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if done.returncode else done.stdout.decode("utf-8", "replace").strip()


def stored_bytes(folder: Path) -> int:
    """Size of all segments."""
    return sum(path.stat().st_size for path in folder.glob("*/*.ciseg*"))
