"""What a line says of the end of a process: a fault of its own, a kill, an echo of others, an exit.

A fault of its own (a GPU fault, a crash, an exception that is not about communication) and a kill
from outside can begin a failure. What a rank says because its peers or the network fell silent is
an echo. What may be either is neither: an abort is what a watchdog ends its process with.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogEvent


class FaultKind(StrEnum):
    """What a line tells of its process."""

    OWN = "own"
    KILLED = "killed"
    LEFT = "left"
    ECHO = "echo"


@dataclass(frozen=True, slots=True)
class Fault:
    """``name`` is the word of the catalogue for it; ``status`` how the process ended, as a launcher
    tells it. ``is_fatal``: no program goes on after it. ``is_report``: somebody else tells it, and
    later. ``is_quoted``: it stands within a text that may only speak of it."""

    kind: FaultKind
    name: str
    status: str = ""
    is_fatal: bool = True
    is_report: bool = False
    is_quoted: bool = False


CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
SIGNAL_WORDS = {
    "Segmentation fault": signal.SIGSEGV, "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL, "Floating point exception": signal.SIGFPE,
    "Killed": signal.SIGKILL, "Out Of Memory": signal.SIGKILL, "Out of memory": signal.SIGKILL,
}  # fmt: skip
# NVIDIA's list of Xid errors: those after which the process that used the GPU cannot go on. 43 and
# 45 follow from another fault; 63, 64 and 74 are recorded, and need not end anything.
FATAL_XIDS = frozenset({13, 31, 48, 79, 94, 95, 119, 120, 140})
HARDWARE_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140})
MAX_WANTED_BYTES = 1 << 42
# what CUDA says while a process goes down, and an allocation that a program may survive
TEAR_DOWN = re.compile(r"driver shutting down|context is destroyed|initialization error")
NO_MEMORY = re.compile(r"out of memory", re.IGNORECASE)
# what stands before an error of CUDA that a process reports of itself: nothing, the source of the
# line, its watchdog, the name of the exception
LEAD = re.compile(
    r"(?:.{0,300}(?:\] |terminated with exception: |what\(\): {1,4}))?"
    r"(?:[\w.]{1,100}(?:Error|Exception): )?"
)
CUDA_SAYS = ("CUDA error", "CUDA out of memory")
ECHO_EXCEPTIONS = re.compile(
    r"(?:^|\.)(?:Dist\w*Error|ChildFailedError|SignalException|ProcessExitedException|"
    r"ProcessRaisedException|RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|"
    r"CalledProcessError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|"
    r"ConnectionAbortedError|ConnectionError|EOFError|TimeoutError|TimeoutExpired|"
    r"CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|StopIteration|\w*Warning)$"
)
ECHO_TEXTS = re.compile(
    r"NCCL|nccl|gloo|c10d|[Cc]ollective|[Ww]atchdog|[Tt]ime(?:d )?out|[Cc]onnection|"
    r"\b[Pp]eer\b|\b[Ss]tore\b|process group|ProcessGroup|all_?reduce|barrier|"
    r"[Bb]roken pipe|socket|[Rr]ank \d+ .{0,40}fail|"
    r"\b[Ww]orkers?\b|\b[Aa]ctors?\b|child process|\bdied\b|\bkilled\b|\bexited\b"
)
# the rank itself misses a process of its own
OWN_WORKERS = re.compile(r"DataLoader worker")
# a signal that goes to all processes of a job when somebody ends it
ASKED_TO_END = re.compile(r"by signal: (?:Interrupt|Terminated|Hangup|Quit)\b")
ECHOES = frozenset(
    {
        C.NCCL_RESULT_PATH, C.NCCL_CONNECTION_CLOSED, C.NCCL_SOCKET_FAILED, C.NCCL_IB_COMPLETION,
        C.NCCL_PROXY_FAILED, C.NCCL_ABORT, C.TORCH_WATCHDOG_TIMEOUT, C.TORCH_WATCHDOG_ECHO,
        C.TORCH_WATCHDOG_DIED, C.TORCH_ASYNC_ERROR, C.TORCH_PROGRESS, C.TORCH_FIRST_SIGNAL,
        C.TORCH_DUMP_SIGNAL, C.TORCH_SIGNAL_SEEN, C.TORCH_WATCHDOG_STUCK, C.TORCH_TAKEN_DOWN,
        C.TORCH_NCCL_ERROR, C.TORCH_NCCL_RESULT, C.TORCH_STORE_LOST, C.TORCH_STORE_TIMEOUT,
        C.TORCH_BARRIER_FAILED, C.TORCH_BARRIER_REACHED, C.GLOO_CLOSED, C.GLOO_TIMEOUT,
        C.TORCH_UNIQUE_ID,
    }
)  # fmt: skip
# a rank writes these after it has waited for all of a time limit, long after the fault
TIMEOUTS = frozenset(
    {
        C.TORCH_WATCHDOG_TIMEOUT, C.TORCH_WATCHDOG_ECHO, C.TORCH_PROGRESS, C.TORCH_DUMP_SIGNAL,
        C.TORCH_WATCHDOG_STUCK, C.TORCH_STORE_TIMEOUT, C.GLOO_TIMEOUT, C.TORCH_BARRIER_FAILED,
        C.TORCH_UNIQUE_ID,
    }
)  # fmt: skip
# a launcher or another process ends it: what it writes afterwards began elsewhere
ENDED_BY_OTHERS = frozenset({C.ELASTIC_CLOSING, C.ELASTIC_SIGNALLED, C.SLURM_CANCELLED})

ECHO = Fault(FaultKind.ECHO, "echo")
CRASH = Fault(FaultKind.OWN, "crash")


def fault_of(event: LogEvent) -> Fault | None:
    """What the line tells of the end of a process; None where it tells nothing of it, or where it
    may be a fault of its own as well as an echo."""
    if event.code in ECHOES:
        return ECHO
    judge = _JUDGES.get(event.code)
    return judge(event) if judge is not None else None


def status_of(exit_code: int) -> Fault | None:
    """What an exit code says: negative, or 128 and more, is a signal. None for an abort and for
    signals with which others end a process."""
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    if not number:
        status = f"exit code {exit_code}"
        if exit_code == 0:
            return Fault(FaultKind.LEFT, "left", status, is_report=True)
        return None  # a program ends with 1 whatever it died of
    return _of_signal(number)


def exit_text(exit_code: int) -> str:
    """The exit code in the words of the other launchers: a signal where it stands for one."""
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    return signal_text(number) if number else f"exit code {exit_code}"


def signal_text(number: int) -> str:
    """``signal 9 (SIGKILL)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def xid_of(event: LogEvent) -> int:
    """The number of a GPU error, 0 for another line."""
    return _number(event, "xid") if event.code is C.KERNEL_XID else 0


def _of_signal(number: int) -> Fault | None:
    if number in CRASH_SIGNALS:
        return Fault(FaultKind.OWN, "crash", signal_text(number), is_report=True)
    if number == signal.SIGKILL:
        return Fault(FaultKind.KILLED, "killed", signal_text(number), is_report=True)
    return None


def _exit(event: LogEvent) -> Fault | None:
    name = event.values.get("signal_name")
    if isinstance(name, str) and name.startswith("SIG"):
        return _of_signal(getattr(signal, name, 0))
    if isinstance(name, str) and name in SIGNAL_WORDS:
        return _of_signal(SIGNAL_WORDS[name])
    if "signal" in event.values:
        return _of_signal(_number(event, "signal"))
    return status_of(_number(event, "exit_code")) if "exit_code" in event.values else None


def _exception(event: LogEvent) -> Fault | None:
    name = str(event.values.get("exception", ""))
    message = str(event.values.get("message", ""))
    is_echo = ECHO_TEXTS.search(f"{name} {message}") and not OWN_WORKERS.search(message)
    if not name or ECHO_EXCEPTIONS.search(name) or is_echo or ASKED_TO_END.search(message):
        return None
    is_memory = bool(NO_MEMORY.search(message)) or name.endswith("MemoryError")
    return Fault(FaultKind.OWN, "no_memory" if is_memory else "exception", is_fatal=False)


def _gpu(event: LogEvent) -> Fault | None:
    said = str(event.values.get("error", ""))
    if TEAR_DOWN.search(said):
        return None
    is_quoted = _is_quoted(event)
    if NO_MEMORY.search(said):
        return Fault(FaultKind.OWN, "no_memory", is_fatal=False, is_quoted=is_quoted)
    return Fault(FaultKind.OWN, "gpu_fault", is_fatal=not is_quoted, is_quoted=is_quoted)


def _gpu_memory(event: LogEvent) -> Fault | None:
    """None for a size that no GPU has: such sizes are read from what an abort left behind."""
    if _number(event, "wanted_bytes") > MAX_WANTED_BYTES:
        return None
    return Fault(FaultKind.OWN, "no_memory", is_fatal=False, is_quoted=_is_quoted(event))


def _is_quoted(event: LogEvent) -> bool:
    """True where the error stands in the middle of a text of the application."""
    begins = [event.text.find(word) for word in CUDA_SAYS if word in event.text]
    return bool(begins) and LEAD.fullmatch(event.text[: min(begins)]) is None


def _xid(event: LogEvent) -> Fault | None:
    xid = xid_of(event)
    if xid not in FATAL_XIDS:
        return None
    return Fault(FaultKind.OWN, "gpu_hardware" if xid in HARDWARE_XIDS else "gpu_fault")


def _fatal(event: LogEvent) -> Fault | None:
    said = str(event.values.get("error", ""))
    number = next((n for word, n in SIGNAL_WORDS.items() if word in said), 0)
    return Fault(FaultKind.OWN, "crash", signal_text(number)) if number in CRASH_SIGNALS else None


def _number(event: LogEvent, name: str) -> int:
    value = event.values.get(name, 0)
    return value if isinstance(value, int) else 0


def _always(fault: Fault) -> Callable[[LogEvent], Fault | None]:
    return lambda _: fault


_JUDGES: Mapping[C, Callable[[LogEvent], Fault | None]] = {
    C.CUDA_ERROR: _gpu,
    C.NCCL_CUDA_FAILURE: _gpu,
    C.CUDA_OUT_OF_MEMORY: _gpu_memory,
    C.NCCL_OUT_OF_MEMORY: _always(Fault(FaultKind.OWN, "no_memory", is_fatal=False)),
    C.PYTHON_EXCEPTION: _exception,
    C.PYTHON_FATAL: _fatal,
    C.KERNEL_SEGFAULT: _always(Fault(FaultKind.OWN, "crash", signal_text(signal.SIGSEGV))),
    C.KERNEL_OOM_KILL: _always(
        Fault(FaultKind.KILLED, "oom_kill", signal_text(signal.SIGKILL))
    ),
    C.KERNEL_XID: _xid,
    C.RAY_WORKER_DIED: _always(Fault(FaultKind.KILLED, "vanished", is_report=True)),
    C.PROCESS_DONE: _always(Fault(FaultKind.LEFT, "left", "exit code 0", is_report=True)),
    **dict.fromkeys(
        (
            C.ELASTIC_WORKER_FAILED, C.ELASTIC_FAILURE, C.ELASTIC_ROOT_CAUSE, C.SPAWN_EXIT,
            C.MPI_RANK_EXIT, C.MPI_EXIT_CODE, C.PROCESS_SIGNAL, C.SHELL_SIGNAL, C.SLURM_TASK_EXIT,
            C.SLURM_TASK_KILLED,
        ),
        _exit,
    ),
}  # fmt: skip
