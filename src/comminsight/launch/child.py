"""The user's command as a child process: its output, signals and exit status pass through."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from comminsight.errors import InputError

FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT})
FORWARDED = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, *sorted(FROM_TERMINAL),
)  # fmt: skip
SHELL_SIGNAL_BASE = 128


@dataclass(slots=True)
class Relay:
    """Hands signals on to the child; those that come before it is there wait for it. ``seen`` are
    the numbers of all that came."""

    child: subprocess.Popen[bytes] | None = None
    seen: set[int] = field(default_factory=set)
    _early: list[int] = field(default_factory=list)

    def attach(self, child: subprocess.Popen[bytes]) -> None:
        """From now on signals go to ``child``."""
        self.child = child
        for number in self._early:
            self.forward(number, None)

    def forward(self, number: int, _frame: FrameType | None) -> None:
        """A key of our terminal reaches the child by itself: twice would be once too often."""
        self.seen.add(number)
        if number in FROM_TERMINAL and is_in_foreground():
            return
        if self.child is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(number)


@contextlib.contextmanager
def relayed_signals() -> Iterator[Relay]:
    """Signals sent to us go to the child while the block runs; ignored ones stay ignored.

    Handlers are functions, which exec resets to the default: the child starts with the
    dispositions that it would have had without us.
    """
    relay = Relay()
    caught = [n for n in FORWARDED if signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, relay.forward) for number in caught}
    try:
        yield relay
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def is_in_foreground() -> bool:
    """True when we belong to the foreground of a terminal: its keys signal all that do."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def start(
    command: Sequence[str], environment: dict[str, str], log: Path | None = None
) -> subprocess.Popen[bytes]:
    """The started command, with our stdin, stdout, stderr and whatever else we were given open.

    ``log`` takes its output instead. Raises InputError when it cannot be started.
    """
    try:
        if log is None:
            return subprocess.Popen(list(command), env=environment, close_fds=False)
        with log.open("wb") as file:
            return subprocess.Popen(list(command), env=environment, stdout=file, stderr=file)
    except OSError as error:
        raise InputError(
            f"cannot start the command: {error.strerror}",
            code="no_start",
            reason=error.strerror,
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
