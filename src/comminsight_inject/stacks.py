"""Optional: a signal writes the stacks of all threads into a file (faulthandler, no locals)."""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import Any, List, Mapping, Optional

# faulthandler keeps the number of the descriptor: the files must never be closed.
_files: List[Any] = []


def signal_number(text: str) -> Optional[int]:
    """Number of ``"12"``, ``"USR2"`` or ``"SIGUSR2"``; None for anything else."""
    if text.isdigit():
        return int(text)
    name = text.upper() if text.upper().startswith("SIG") else "SIG" + text.upper()
    number = getattr(signal, name, None)
    return int(number) if isinstance(number, signal.Signals) else None


def register(env: Mapping[str, str]) -> bool:
    """True when COMMINSIGHT_STACK_SIGNAL now writes to COMMINSIGHT_STACK_DIR/<pid>.stack.

    A signal for which the job has a handler of its own is left alone.
    """
    number = signal_number(env.get("COMMINSIGHT_STACK_SIGNAL", ""))
    folder = env.get("COMMINSIGHT_STACK_DIR", "")
    if number is None or not folder:
        return False
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        return False
    path = os.path.join(folder, "%d.stack" % os.getpid())
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - kept open, see _files
    _files.append(file)
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    return True
