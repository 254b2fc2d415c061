"""Class 1: a rank crashes, is killed or leaves, and the others report that they waited."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from comminsight.diagnosis import codes, codes_logs
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.log_files import Line, host_of, init, nccl, pid_of, waiting, write_logs
from tests.cases.field_case import Expected, FieldCase, Scene

ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
DEAD = (Cause.RANK_DEAD,)


def others(n_ranks: int, *culprits: int) -> list[int]:
    return [rank for rank in range(n_ranks) if rank not in culprits]


def traceback(at_s: float, rank: int, end: str) -> list[Line]:
    """Python's last words, which carry no stamp of their own."""
    texts = ("Traceback (most recent call last):", '  File "/job/step.py", line 88, in forward',
             "    out = self.layer(x)", end)  # fmt: skip
    return [Line(at_s, rank, text, source="") for text in texts]


def echoes(at_s: float, ranks: Sequence[int]) -> list[Line]:
    """What goes on after the first abort: no memory, broken pipes, a store that is gone."""
    found = []
    for rank in ranks:
        found += traceback(at_s + 3, rank, "torch.OutOfMemoryError: CUDA out of memory. Tried to "
                           "allocate 9223372036.00 GiB. GPU 0 has a total")  # fmt: skip
        found.append(Line(at_s + 4, rank, "[c10d] sendBytes failed on SocketImpl(fd=81, addr="
                          "[::1]:29500, remote=[::1]:40000): Broken pipe"))  # fmt: skip
    return found


def gpu_fault(
    folder: Path, *, n_ranks: int, culprit: int, seq: int, form: str, has_dumps: bool
) -> Scene:
    """A kernel faults on one rank, whose process dies; the others wait in one all-reduce."""
    rest = others(n_ranks, culprit)
    fault = [
        Line(100.0, culprit, f"[PG ID 0 PG GUID 0(default_pg) Rank {culprit}] Process group "
             f"watchdog thread terminated with exception: {ILLEGAL.partition(': ')[2]}"),
    ]  # fmt: skip
    late = [*waiting(700.1, rest, seq=seq), *echoes(701, rest[:2])]
    write_logs(folder / "fault", [*fault, *late], form=form)
    write_logs(folder / "twin", late, form=form)
    if has_dumps:
        calls = {rank: [Call("0", "all_reduce")] * seq for rank in range(n_ranks)}
        job = FlightJob({"0": Group("default_pg", tuple(range(n_ranks)))}, calls,
                        host_stops={culprit: seq - 1}).play()  # fmt: skip
        for place in ("fault", "twin"):
            write_dumps(folder / place, job, ranks=rest, name="dump_{}")
    told = (codes_logs.FIRST_ERROR,)
    return Scene(folder / "fault", Expected(DEAD, (culprit,), told=told), folder / "twin")


def finished_early(
    folder: Path, *, n_ranks: int, waiters: tuple[int, ...], n_calls: int, has_dumps: bool
) -> Scene:
    """Ranks with less data end well while the others still want partners."""
    left = others(n_ranks, *waiters)
    lines = init(range(n_ranks), world=n_ranks)
    for rank in waiters:
        ahead = rank % 2
        lines += waiting(1900, [rank], seq=n_calls + 1 + ahead, op="ALLTOALL_BASE", limit_s=1800)
    for rank in left:
        lines.append(Line(90.0 + rank, -1, f"Process {pid_of(rank)} exits successfully."))
    write_logs(folder / "fault", lines)
    # the same ends, but one rank is silent: it may be the one that all wait for
    write_logs(folder / "twin", [line for line in lines if str(pid_of(left[0])) not in line.text
                                 or line.rank >= 0])  # fmt: skip
    if has_dumps:
        calls = {rank: [Call("0", "all_to_all")] * n_calls for rank in range(n_ranks)}
        for rank in waiters:
            calls[rank] = [Call("0", "all_to_all")] * (n_calls + 1)
        world = {"0": Group("default_pg", tuple(range(n_ranks)))}
        job = FlightJob(world, calls).play()
        write_dumps(folder / "fault", job, ranks=waiters, name="dump_{}")
        write_dumps(folder / "twin", job, ranks=waiters, name="dump_{}")
    told = (codes.LEFT, codes_logs.COMPARE_BATCHES)
    return Scene(folder / "fault", Expected(DEAD, tuple(left), told=told), folder / "twin")


def remote_crash(
    folder: Path, *, n_ranks: int, culprit: int, signal_word: str, form: str, by_kernel: bool
) -> Scene:
    """A process of another node crashes; the healthy node ends with an internal error."""
    lines = init(range(n_ranks), world=n_ranks)
    pid, host = pid_of(culprit), host_of(culprit)
    if by_kernel:
        crash = [
            Line(
                10.0,
                -1,
                f"2026-04-14T16:00:10.000+00:00 {host} kernel: [ 991.250000] "
                f"python[{pid}]: segfault at 10 ip 00007f sp 00007e error 4 in libfoo.so",
            )
        ]
    else:
        crash = [Line(10.4, -1, f"/job/run.sh: line 12: {pid} {signal_word}      (core dumped) "
                      "python train.py")]  # fmt: skip
    near = [rank for rank in range(n_ranks) if host_of(rank) != host][:3]
    late = []
    for rank in near:
        late += [
            nccl(10.2, rank, "Call to recv from 10.0.0.9<40123> failed : Broken pipe",
                 level="WARN", source="misc/socket.cc:56"),
            nccl(10.2, rank, f"ncclProxyConnect call to tpRank {culprit} failed : 6",
                 level="WARN", source="proxy.cc:1040"),
            Line(10.3, rank, "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, "
                 "internal error", source=""),
        ]  # fmt: skip
    write_logs(folder / "fault", [*lines, *crash, *late], form=form)
    write_logs(folder / "twin", [*lines, *late], form=form)
    told = (codes_logs.LOG_ECHOES,)
    return Scene(folder / "fault", Expected(DEAD, (culprit,), told=told), folder / "twin")


def killed_worker(folder: Path, *, n_ranks: int, culprit: int, by: str, form: str) -> Scene:
    """A worker vanishes; transfers with it fail, and watchdogs follow."""
    stamp = "0414 16:00:51.000000"
    pid, host = pid_of(culprit), host_of(culprit)
    lines = init(range(n_ranks), world=n_ranks)
    said = {
        "ray": f"A worker died or was killed while executing a task by an unexpected system error."
               f" Worker ID: ab Worker PID: {pid} Worker exit type: SYSTEM_ERROR",
        "torchrun": f"E{stamp} 99 torch/distributed/elastic/multiprocessing/api.py:"
                    f"869] failed (exitcode: -9) local_rank: {culprit % 8} (pid: {pid}) of binary:"
                    " /usr/bin/python",
        "kernel": f"2026-04-14T16:00:50+00:00 {host} kernel: [ 50.250000] Out of memory: Killed "
                  f"process {pid} (python3) total-vm:900kB, anon-rss:733120kB, file-rss:1kB",
    }[by]  # fmt: skip
    prefix = f"(Trainer pid={pid}, ip={host}) " if by == "ray" else ""
    kill = [Line(50.5, -1, prefix + said)]
    near = others(n_ranks, culprit)[-2:]
    late = []
    for rank, status in zip(near, (5, 12), strict=True):
        late.append(nccl(50.6 + status / 2, rank, f"NET/IB: Got completion from peer "
                         f"10.0.0.5<4791> with status={status} opcode=0 len=0 vendor err 244",
                         level="WARN", source="transport/net_ib.cc:1295"))  # fmt: skip
    given_up = waiting(650, others(n_ranks, culprit), seq=1, op="ALLGATHER")
    write_logs(folder / "fault", [*lines, *kill, *late, *given_up], form=form)
    # killed by its launcher after the others had given up: who began it is not known
    after = [
        dataclasses.replace(line, at_s=700.0, text=line.text.replace(stamp, "0414 16:11:40.000000"))
        for line in kill
    ]
    write_logs(folder / "twin", [*lines, *given_up, *(after if by == "torchrun" else [])],
               form=form)  # fmt: skip
    told = () if by == "kernel" else (codes_logs.MISSING_KERNEL_LOG,)
    return Scene(folder / "fault", Expected(DEAD, (culprit,), told=told), folder / "twin")


def wedged(folder: Path, *, n_ranks: int, culprit: int, n_stuck: int) -> Scene:
    """One rank stands still in its own work, the others wait in the barrier of the shutdown, and
    none ends when asked to."""
    calls = {rank: [Call("0", "all_reduce")] * 3 + [Call("0", "barrier", ())] * (rank != culprit)
             for rank in range(n_ranks)}  # fmt: skip
    job = FlightJob({"0": Group("default_pg", tuple(range(n_ranks)))}, calls).play()
    healthy = FlightJob(job.groups, dict.fromkeys(range(n_ranks), calls[(culprit + 1) % n_ranks]))
    lines = init(range(n_ranks), world=n_ranks)
    asked = [
        Line(900.0 + rank, -1, "W0414 16:15:00.000000 99 torch/distributed/elastic/x.py:897] "
             f"Sending process {pid_of(rank)} closing signal SIGTERM")
        for rank in range(n_ranks)
    ]  # fmt: skip
    forced = [
        Line(940.0 + rank, -1, "W0414 16:15:40.000000 99 torch/distributed/elastic/x.py:916] "
             f"Unable to shutdown process {pid_of(rank)} via Signals.SIGTERM, forcefully exiting "
             "via Signals.SIGKILL")
        for rank in range(n_stuck)
    ]  # fmt: skip
    write_logs(folder / "fault", [*lines, *asked, *forced])
    write_logs(folder / "twin", [*lines, *asked])
    write_dumps(folder / "fault", job, name="dump_{}")
    write_dumps(folder / "twin", healthy.play(), name="dump_{}")
    told = (codes_logs.NOT_ENDED, codes_logs.END_HARD)
    expected = Expected((Cause.RANK_NOT_ENTERED,), (culprit,), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def variants(names: str, *rows: tuple[object, ...]) -> tuple[dict[str, object], ...]:
    """Rows of a table as the arguments of a builder."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


CASES: tuple[FieldCase, ...] = (
    FieldCase(1, "a GPU fault, and the others time out", gpu_fault, variants(
        "n_ranks culprit seq form has_dumps",
        (4, 3, 41, "mixed", True), (8, 0, 7, "files", True), (16, 11, 300, "docker", False),
        (4, 1, 2, "unstamped", False), (8, 5, 9, "cri", False), (8, 6, 12, "mpirun", True),
    )),
    FieldCase(2, "ranks that finish early", finished_early, variants(
        "n_ranks waiters n_calls has_dumps",
        (8, (1, 4, 6), 35, False), (4, (0,), 12, True), (16, (2, 3), 7, True),
    )),
    FieldCase(3, "a crash on another node", remote_crash, variants(
        "n_ranks culprit signal_word form by_kernel",
        (16, 9, "Segmentation fault", "mixed", False), (16, 1, "Bus error", "mpirun", False),
        (24, 20, "", "files", True),
    )),
    FieldCase(4, "a worker that is killed", killed_worker, variants(
        "n_ranks culprit by form",
        (8, 5, "torchrun", "mixed"), (8, 2, "ray", "mixed"), (16, 12, "kernel", "files"),
    )),
    FieldCase(5, "a job that keeps its GPUs", wedged, variants(
        "n_ranks culprit n_stuck", (4, 1, 4), (8, 0, 3), (6, 5, 1),
    )),
)  # fmt: skip
