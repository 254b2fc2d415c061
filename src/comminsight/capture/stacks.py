"""The stack of a process by the best means there are: a ladder from py-spy down to /proc.

1. ``py-spy dump``, without locals and without stopping the process; needs ptrace rights.
2. faulthandler: the process itself writes its Python stacks when it gets a signal. Only where the
   site opted in (COMMINSIGHT_STACK_SIGNAL, COMMINSIGHT_STACK_DIR) and the process is seen to
   catch that signal: any other process would be ended by it.
3. /proc: state, wait channel and (for root) kernel stack of every thread.

A lower rung carries the reason why the higher one failed as a code of the message catalogue.
Command lines are left out: they may hold secrets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from comminsight.capture.process import PROC, is_running
from comminsight.model.hang import Stack, StackSource

MAX_TEXT_CHARS = 1 << 18
MAX_THREADS = 64
POLL_S = 0.02
SETTLED_S = 0.1  # a stack file that has not grown for so long is complete

MISSING = "stack.py_spy_missing"
DENIED = "stack.py_spy_denied"
SLOW = "stack.py_spy_slow"
FAILED = "stack.py_spy_failed"
PROCESS_GONE = "stack.process_gone"
PROC_CLOSED = "stack.proc_closed"


@dataclass(frozen=True, slots=True)
class StackSettings:
    """How stacks may be taken. ``signal_number`` 0: no faulthandler. The deadline is per rung."""

    py_spy: str = ""
    signal_number: int = 0
    signal_dir: Path | None = None
    deadline_s: float = 5.0


def stack_settings(environment: Mapping[str, str], *, deadline_s: float = 5.0) -> StackSettings:
    """What this environment allows; py-spy is looked for beside the interpreter, then on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    folder = environment.get("COMMINSIGHT_STACK_DIR", "")
    return StackSettings(
        py_spy=found or "",
        signal_number=_signal_number(environment.get("COMMINSIGHT_STACK_SIGNAL", "")),
        signal_dir=Path(folder) if folder else None,
        deadline_s=deadline_s,
    )


def take_stack(
    pid: int, settings: StackSettings, *, global_rank: int = -1, start_ticks: int = 0
) -> Stack:
    """The stack of process ``pid`` from the highest rung that gives one; never raises.

    ``start_ticks`` guards against a pid that was given to another process. Takes at most two
    deadlines.
    """
    if start_ticks and not is_running(pid, start_ticks):
        return Stack(global_rank=global_rank, pid=pid, source=StackSource.NONE, reason=PROCESS_GONE)
    text, reason = _by_py_spy(pid, settings)
    source = StackSource.PY_SPY
    if not text:
        text, source = _by_faulthandler(pid, settings), StackSource.FAULTHANDLER
    if not text:
        text, source = _by_proc(pid), StackSource.PROC
    if not text:
        source = StackSource.NONE
        reason = PROC_CLOSED if (PROC / str(pid)).exists() else PROCESS_GONE
    return Stack(
        global_rank=global_rank, pid=pid, source=source, text=text[:MAX_TEXT_CHARS], reason=reason
    )


def _by_py_spy(pid: int, settings: StackSettings) -> tuple[str, str]:
    """(stacks, "") or ("", reason)."""
    if not settings.py_spy:
        return "", MISSING
    command = [settings.py_spy, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError:
        return "", MISSING
    try:
        output, complaint = process.communicate(timeout=settings.deadline_s)
    except subprocess.TimeoutExpired:
        _abandon(process)
        return "", SLOW
    if process.returncode == 0 and "Thread" in output:
        return _without_command_line(output), ""
    is_denied = "permission" in complaint.lower() or "not permitted" in complaint.lower()
    return "", DENIED if is_denied else FAILED


def _abandon(process: subprocess.Popen[str]) -> None:
    """Ends a dump without waiting for it: one that hangs in the kernel cannot be ended at once."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=POLL_S)


def _without_command_line(output: str) -> str:
    """The dump from its ``Python v…`` line on; the line before holds the command line."""
    begin = output.find("\nPython v")
    return (output[begin + 1 :] if begin >= 0 else output[output.find("Thread") :]).strip()


def _by_faulthandler(pid: int, settings: StackSettings) -> str:
    """What the process wrote after the signal, "" when it is not ready to be asked."""
    status = _status(pid)
    number = settings.signal_number
    if number <= 0 or settings.signal_dir is None or not _catches(status, number):
        return ""
    own_pid = status.get("NSpid", str(pid)).split()[-1]  # the pid it sees in its own namespace
    path = settings.signal_dir / f"{own_pid}.stack"
    try:
        before_bytes = path.stat().st_size
        os.kill(pid, number)
        _await_growth(path, before_bytes, settings.deadline_s)
        with path.open("rb") as file:
            file.seek(before_bytes)
            return file.read(MAX_TEXT_CHARS).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _await_growth(path: Path, before_bytes: int, deadline_s: float) -> None:
    """Waits until the file has grown and settled, or until the deadline."""
    end_s = time.monotonic() + deadline_s
    size_bytes, changed_s = before_bytes, time.monotonic()
    while time.monotonic() < end_s:
        time.sleep(POLL_S)
        now_bytes = path.stat().st_size
        if now_bytes != size_bytes:
            size_bytes, changed_s = now_bytes, time.monotonic()
        elif size_bytes > before_bytes and time.monotonic() - changed_s >= SETTLED_S:
            return


def _catches(status: Mapping[str, str], number: int) -> bool:
    caught = int(status.get("SigCgt", "0"), 16)
    return bool(caught >> (number - 1) & 1)


def _by_proc(pid: int) -> str:
    """One block per thread, the main one first; "" when not even the status can be read."""
    if not _status(pid):
        return ""
    try:
        threads = sorted(int(entry.name) for entry in (PROC / str(pid) / "task").iterdir())
    except OSError:
        threads = [pid]
    blocks = [_thread_block(PROC / str(pid) / "task" / str(thread)) for thread in threads]
    shown = [block for block in blocks[:MAX_THREADS] if block]
    if len(blocks) > MAX_THREADS:
        shown.append(f"({len(blocks) - MAX_THREADS} more threads)")
    return "\n".join(shown)


def _thread_block(folder: Path) -> str:
    status = _fields(_text(folder / "status"))
    if not status:
        return ""
    lines = [f"Thread {folder.name} ({status.get('Name', '?')}): {status.get('State', '?')}"]
    waits_in = _text(folder / "wchan").strip()
    if waits_in not in {"", "0"}:
        lines.append(f"    waits in {waits_in}")
    lines += [f"    {frame.strip()}" for frame in _text(folder / "stack").splitlines()]
    return "\n".join(lines)


def _status(pid: int) -> dict[str, str]:
    return _fields(_text(PROC / str(pid) / "status"))


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _signal_number(text: str) -> int:
    """Number of ``12``, ``USR2`` or ``SIGUSR2``; 0 for anything else."""
    if text.isdigit():
        return int(text) if 0 < int(text) < signal.NSIG else 0
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else 0
