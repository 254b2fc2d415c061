"""What a line tells of its process: a fault of its own, a kill, an end in order, or an echo."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_faults import FaultKind, exit_text, fault_of
from tests.unit.analysis.log_texts import event_of, job_log

OWN, KILLED, LEFT, ECHO = FaultKind.OWN, FaultKind.KILLED, FaultKind.LEFT, FaultKind.ECHO


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("CUDA error: an illegal memory access was encountered", OWN, "gpu_fault"),
        ("CUDA error: driver shutting down", None, ""),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", OWN, "no_memory"),
        ("CUDA out of memory. Tried to allocate 9223372036.00 GiB. GPU 0 has", None, ""),
        ("Fatal Python error: Segmentation fault", OWN, "crash"),
        ("Fatal Python error: Aborted", None, ""),
        ("python[77]: segfault at 10 ip 00007f sp 00007e error 4", OWN, "crash"),
        ("Out of memory: Killed process 77 (python3) total-vm:900kB", KILLED, "oom_kill"),
        ("x failed (exitcode: -9) local_rank: 3 (pid: 77)", KILLED, "killed"),
        ("x failed (exitcode: -11) local_rank: 3 (pid: 77)", OWN, "crash"),
        ("x failed (exitcode: 137) local_rank: 3 (pid: 77)", KILLED, "killed"),
        ("x failed (exitcode: -6) local_rank: 3 (pid: 77)", None, ""),
        ("x failed (exitcode: -15) local_rank: 3 (pid: 77)", None, ""),
        ("x failed (exitcode: 1) local_rank: 3 (pid: 77)", None, ""),
        ("Process 77 exits successfully.", LEFT, "left"),
        ("srun: error: n1: task 3: Killed", KILLED, "killed"),
        ("srun: error: n1: task 3: Terminated", None, ""),
        ("[n1:77] Signal: Bus error (7)", OWN, "crash"),
        ("[n1:77] Signal: Aborted (6)", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has", OWN, "gpu_hardware"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, MMU", OWN, "gpu_fault"),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=77, name=python, Ch", None, ""),
        ("NVRM: Xid (PCI:0000:3b:00): 63, pid=77, name=python, Row", None, ""),
        ("[c10d] sendBytes failed on SocketImpl(fd=8, addr=[::1]:2, remote=[::1]:4): Broken pipe",
         ECHO, "echo"),
        ("n1:7:8 [0] x.cc:1 NCCL WARN Connection closed by remote peer n2<4>", ECHO, "echo"),
    ],
)  # fmt: skip
def test_a_line(line: str, kind: FaultKind | None, name: str) -> None:
    fault = fault_of(event_of(line))
    assert (fault.kind, fault.name) == (kind, name) if fault is not None else kind is None


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("ValueError: too many values to unpack", "exception"),
        ("KeyError: 'step'", "exception"),
        ("MemoryError", "no_memory"),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "exception"),
        ("FileNotFoundError: /data/restored/peers.json", "exception"),
        ("RuntimeError: NCCL communicator was aborted on rank 3.", ""),
        ("RuntimeError: Timed out waiting for the others", ""),
        ("torch.distributed.DistStoreError: Socket Timeout", ""),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", ""),
        ("KeyboardInterrupt", ""),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", ""),
        ("ray.exceptions.ActorDiedError: The actor died", ""),
    ],
)
def test_the_end_of_a_traceback(end: str, name: str) -> None:
    events = job_log(
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', end
    ).events
    fault = fault_of(events[-1])
    assert (fault.name if fault is not None else "") == name


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (1, "exit code 1"), (-9, "signal 9 (SIGKILL)"),
     (139, "signal 11 (SIGSEGV)"), (-99, "signal 99")],
)  # fmt: skip
def test_an_exit_code_in_words(code: int, text: str) -> None:
    assert exit_text(code) == text
