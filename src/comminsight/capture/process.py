"""Identity of a process on this node: boot id, pid and start time, which together never repeat."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def boot_id(proc: Path = PROC) -> str:
    """The kernel's boot id, "" when it cannot be read."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int, proc: Path = PROC) -> int:
    """Start time of a process in clock ticks since boot, 0 when there is no such process."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return 0
    # the command name may hold spaces and brackets: count fields after its closing one
    return int(stat.rpartition(")")[2].split()[19])


def is_running(pid: int, ticks: int, proc: Path = PROC) -> bool:
    """True when exactly that process (not one that reuses its pid) exists and is no zombie."""
    if pid <= 0 or start_ticks(pid, proc) != ticks:
        return False
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
