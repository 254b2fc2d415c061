"""Class 10: memory and other limits of processes, cards and GPUs."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes_logs
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.log_files import Line, host_of, init, nccl, pid_of, write_logs
from tests.cases.class_01_dead_ranks import variants
from tests.cases.field_case import Expected, FieldCase, Scene


def warn(at_s: float, rank: int, text: str, source: str = "misc/shmutils.cc:72") -> Line:
    return nccl(at_s, rank, text, level="WARN", source=source)


def no_space(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], size: int, capacity: str, form: str
) -> Scene:
    """Segments do not fit. In the twin the same call fails for want of permission."""
    lines = init(range(n_ranks), world=n_ranks)
    said = "Error while creating shared memory segment /dev/shm/nccl-Ab{n} (size {size})"
    full = [
        warn(3.0, rank, said.format(n=n, size=size) + ", error: No space left on device")
        for rank in culprits
        for n in range(2)
    ]
    denied = [
        warn(3.0, rank, said.format(n=9, size=size) + ", error: Permission denied")
        for rank in culprits
    ]
    df = [Line(0.1, -1, f"shm              {capacity}   60M    4M  94% /dev/shm")]
    listed = df if capacity else []
    write_logs(folder / "fault", [*lines, *full, *listed], form=form)
    write_logs(folder / "twin", [*lines, *denied, *listed], form=form)
    told: tuple[str, ...] = (codes_logs.SHM_SEGMENT, codes_logs.GROW_SHM)
    told += (codes_logs.SHM_CAPACITY,) if capacity else ()
    return Scene(folder / "fault", Expected((Cause.SHM_EXHAUSTED,), culprits, told=told),
                 folder / "twin")  # fmt: skip


def bus_errors(folder: Path, *, n_ranks: int, culprits: tuple[int, ...], by: str) -> Scene:
    """Ranks of one host end with signal 7. A single one may have any reason."""
    lines = init(range(n_ranks), world=n_ranks)

    def died(rank: int) -> Line:
        pid = pid_of(rank)
        text = {
            "torchrun": f"E0414 16:00:09.000000 99 torch/distributed/elastic/x.py:869] failed "
                        f"(exitcode: -7) local_rank: {rank % 8} (pid: {pid}) of binary: python",
            "mpirun": f"mpirun noticed that process rank {rank} with PID {pid} on node "
                      f"{host_of(rank)} exited on signal 7 (Bus error).",
            "shell": f"/job/run.sh: line 12: {pid} Bus error      (core dumped) python train.py",
        }[by]  # fmt: skip
        return Line(9.0, -1, text)

    write_logs(folder / "fault", [*lines, *map(died, culprits)])
    write_logs(folder / "twin", [*lines, died(culprits[0])])
    told = (codes_logs.BUS_ERRORS, codes_logs.CHECK_SHM)
    expected = Expected((Cause.SHM_EXHAUSTED,), culprits, told=told)
    twin = Expected((Cause.RANK_DEAD,), culprits[:1])
    return Scene(folder / "fault", expected, folder / "twin", twin)


def verbs_failed(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], call: str, limit: str,
    cause: Cause, form: str,
) -> Scene:  # fmt: skip
    """A call of the verbs library finds no memory; which limit is in the way, the process's limit
    of locked memory tells. Without it nothing is said."""
    lines = init(range(n_ranks), world=n_ranks)
    failed = [
        warn(4.0, rank, f"Call to {call} failed with error Cannot allocate memory",
             "misc/ibvwrap.cc:120")
        for rank in culprits
    ]  # fmt: skip
    listed = [Line(0.2, -1, f"max locked memory           (kbytes, -l) {limit}")]
    write_logs(folder / "fault", [*lines, *failed, *listed], form=form)
    write_logs(folder / "twin", [*lines, *failed], form=form)
    told = (codes_logs.CALL_FAILED, codes_logs.LIMIT_VALUE)
    twin = Expected(told=(codes_logs.MISSING_RESOURCE_LIMIT,))
    return Scene(folder / "fault", Expected((cause,), culprits, told=told), folder / "twin", twin)


def no_descriptors(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], limit: int, threads: int, form: str
) -> Scene:
    """Too many open files. The twin lists a low limit, and nothing failed."""
    lines = init(range(n_ranks), world=n_ranks)
    env = [nccl(0.3, 0, f"NCCL_SOCKET_NTHREADS set by environment to {threads}."),
           nccl(0.3, 0, "NCCL_NSOCKS_PERTHREAD set by environment to 8.")]  # fmt: skip
    listed = [
        Line(0.1, -1, f"Max open files            {limit}                 524288       files")
    ]
    failed = [
        warn(5.0, rank, "Call to socket failed : Too many open files", "misc/socket.cc:400")
        for rank in culprits
    ]
    write_logs(folder / "fault", [*lines, *env, *listed, *failed], form=form)
    write_logs(folder / "twin", [*lines, *env, *listed], form=form)
    told = (codes_logs.LIMIT_VALUE, codes_logs.SOCKETS_NEEDED, codes_logs.RAISE_DESCRIPTORS)
    expected = Expected((Cause.FD_LIMIT,), culprits, told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def many_groups(
    folder: Path, *, n_ranks: int, culprit: int, n_groups: int, n_used: int, error: str
) -> Scene:
    """A rank is in many groups when an allocation of NCCL fails. In the twin it is in one."""
    rest = tuple(range(n_ranks))
    groups = {str(n): Group("default_pg" if not n else f"group_{n}", rest) for n in range(n_groups)}
    calls = [Call(str(n), "all_reduce") for n in range(n_used)] * 2
    job = FlightJob(groups, dict.fromkeys(rest, calls)).play()
    lines = init(range(n_ranks), world=n_ranks)
    failed = [warn(60.0, culprit, error, "include/alloc.h:99")]
    write_logs(folder / "fault", [*lines, *failed])
    write_dumps(folder / "fault", job, name="dump_{}")
    write_logs(folder / "twin", [*lines, *failed])
    few = FlightJob({"0": groups["0"]}, dict.fromkeys(rest, [Call("0", "all_reduce")] * 4)).play()
    write_dumps(folder / "twin", few, name="dump_{}")
    told: tuple[str, ...] = (codes_logs.MANY_COMMS, codes_logs.DROP_GROUPS)
    told += (codes_logs.UNUSED_GROUPS,) if n_used < n_groups else ()
    return Scene(folder / "fault", Expected((Cause.COMM_MEMORY,), (culprit,), told=told),
                 folder / "twin")  # fmt: skip


def leaking_proxy(
    folder: Path, *, n_ranks: int, culprit: int, n_calls: int, version: str, is_json: bool
) -> Scene:
    """One rank lags by one op, on ARM with a version that leaks. The twin has a version without
    the fault: then only the rank is told."""
    step = [Call("0", "all_reduce")] * n_calls
    calls = {rank: step[: n_calls - (rank == culprit)] for rank in range(n_ranks)}
    job = FlightJob({"0": Group("default_pg", tuple(range(n_ranks)))}, calls).play()
    uname = [Line(0.0, -1, "Linux node00 6.8.0-1 #1 SMP 2026 aarch64 aarch64 aarch64 GNU/Linux")]
    for place, printed in (("fault", version), ("twin", "2.30.7")):
        lines = [nccl(1.0, rank, f"NCCL version {printed}+cuda12.9") for rank in (0, n_ranks - 1)]
        write_logs(folder / place, [*uname, *lines])
        write_dumps(folder / place, job, name="dump_{}", is_json=is_json)
    causes = (Cause.RANK_NOT_ENTERED,)
    told = (codes_logs.KNOWN_FAULT,)
    expected = Expected(causes, (culprit,), also=(Cause.KNOWN_BAD_VERSION,), told=told)
    return Scene(folder / "fault", expected, folder / "twin", Expected(causes, (culprit,)))


LOW, UNLIMITED = "8192", "unlimited"
MEMLOCK, QUEUES = Cause.MEMLOCK_LOW, Cause.QP_CQ_EXHAUSTED
CASES: tuple[FieldCase, ...] = (
    FieldCase(82, "no space for a segment", no_space, variants(
        "n_ranks culprits size capacity form",
        (4, (0, 1, 2, 3), 9637888, "64M", "mixed"), (16, (8, 9), 4194660, "", "files"),
        (8, (5,), 33554432, "2.0G", "mpirun"),
    )),
    FieldCase(83, "bus errors in a container", bus_errors, variants(
        "n_ranks culprits by", (2, (0, 1), "torchrun"), (8, (2, 3, 5), "mpirun"),
        (16, (8, 15), "shell"),
    )),
    FieldCase(84, "memory cannot be registered", verbs_failed, variants(
        "n_ranks culprits call limit cause form",
        (4, (0, 1, 2, 3), "ibv_reg_mr", LOW, MEMLOCK, "mixed"),
        (16, (9,), "ibv_reg_mr_iova2", "65536", MEMLOCK, "files"),
        (8, (1, 2), "ibv_create_cq", "64", MEMLOCK, "mpirun"),
    )),
    FieldCase(85, "no completion queue", verbs_failed, variants(
        "n_ranks culprits call limit cause form",
        (16, tuple(range(16)), "ibv_create_cq", UNLIMITED, QUEUES, "mixed"),
        (24, (3, 20), "ibv_create_qp", UNLIMITED, QUEUES, "files"),
        (8, (7,), "ibv_create_cq", "1073741824", QUEUES, "mpirun"),
    )),
    FieldCase(86, "too many open files", no_descriptors, variants(
        "n_ranks culprits limit threads form",
        (16, (3,), 1024, 8, "mixed"), (8, (0, 7), 4096, 4, "files"), (24, (20,), 256, 1, "docker"),
    )),
    FieldCase(87, "buffers of many groups", many_groups, variants(
        "n_ranks culprit n_groups n_used error",
        (4, 2, 9, 6, "Cuda failure 2 'out of memory'"),
        (8, 0, 12, 12, "Cuda failure 'out of memory'"),
        (2, 1, 5, 1, "Failed to CUDA calloc async 4194304"),
    )),
    FieldCase(88, "a version that leaks on ARM", leaking_proxy, variants(
        "n_ranks culprit n_calls version is_json",
        (128, 77, 51, "2.28.9", False), (16, 0, 12, "2.28.3", True), (8, 7, 5, "2.27.5", False),
    )),
)  # fmt: skip
