"""The user's command as a child process: its output, signals and exit status pass through."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from comminsight.errors import InputError

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
SHELL_SIGNAL_BASE = 128


@contextlib.contextmanager
def forwarding_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals sent to us go on to the child; Ctrl-C reaches it from the terminal by itself."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in FORWARDED}
    previous[signal.SIGINT] = signal.signal(
        signal.SIGINT, signal.SIG_IGN if os.isatty(0) else forward
    )
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def start(
    command: Sequence[str], environment: dict[str, str], log: Path | None = None
) -> subprocess.Popen[bytes]:
    """The started command, with our stdin, stdout and stderr; ``log`` takes its output instead.

    Raises InputError when it cannot be started.
    """
    try:
        if log is None:
            return subprocess.Popen(list(command), env=environment)
        with log.open("wb") as file:
            return subprocess.Popen(list(command), env=environment, stdout=file, stderr=file)
    except OSError as error:
        raise InputError(
            f"cannot start the command: {error.strerror}",
            path=command[0],
            next_step="check the words after `--`",
        ) from error


def wait(
    child: subprocess.Popen[bytes], *, tick: Callable[[], None], interval_s: float
) -> tuple[int, int]:
    """(exit code as a shell shows it, signal number or 0); ``tick`` is called while it runs."""
    while True:
        try:
            code = child.wait(timeout=interval_s)
        except subprocess.TimeoutExpired:
            tick()
            continue
        return (SHELL_SIGNAL_BASE - code, -code) if code < 0 else (code, 0)
