"""Seconds that verdicts take, and CPU seconds: from 1,024 Flight Recorder dumps, from 16 long
ones, from the logs of 1,024 ranks (few events in many lines; about a hundred events of each rank,
reading and judging apart), and from records of 1,024 and 8,192 ranks in flight.

Many files are read by as many processes as there are cores: what one waits is told, and the CPU
time of all of them.

Run: ``python benchmarks/diagnosis.py``. The best or the median of three. The 1,024 dumps are of
TP 8 x PP 8 x DP 16; each entry has the ten frames of its call site, and one rank has stopped in the
last step. Dumps are also held against unpickling the same bytes and nothing else, in the same run:
that tells how fast the machine is just now.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - the baseline, on bytes of our own
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from tests.builders.flight_recorder import FlightJob, parallel_job, torch_pickle
from tests.unit.diagnosis.events import AR, came, comm, event, op

from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.job import judge_job
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.report import RunReport
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Verdict
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.job_evidence import gather

DUMPS, LONG_DUMPS, LOGS = "1,024 dumps x 200 entries", "16 dumps x 2,000 entries", "1,024 logs"
GOALS_S = {DUMPS: 2.0, LONG_DUMPS: 1.0, LOGS: 2.0}  # what one waits
CALL_LOGS_GOAL_S = 2.0
MAX_RATIOS = {DUMPS: 6.0, LONG_DUMPS: 2.5}  # to unpickling alone, between the fastest of each
CALL_LOGS = "1,024 logs x 100 events"
EVENT_GOAL_S = 2.0
N_FRAMES = 10


def stopped_job(tp: int, pp: int, dp: int, n_steps: int, late: int) -> FlightJob:
    """One in which rank ``late`` stands still in the last step."""
    job = parallel_job(tp, pp, dp, n_steps=n_steps, n_microbatches=4)
    job.host_stops[late] = len(job.programs[late]) - 20
    return job.play()


def write_dumps(place: Path, job: FlightJob, n_entries: int) -> None:
    """Dumps as torch writes them; every kind of call comes from three places of the program."""
    stacks: dict[tuple[str, int], list[dict[str, object]]] = {}
    for rank in job.programs:
        document = job.dump(rank, ring=n_entries)
        for number, entry in enumerate(document["entries"]):
            name, site = entry["profiling_name"], number % 3
            entry["frames"] = stacks.setdefault((name, site), [
                {"name": f"layer_{k}", "filename": f"/app/{name}.py", "line": site * 100 + k}
                for k in range(N_FRAMES)
            ])  # fmt: skip
        (place / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(document))


def write_logs(place: Path, n_ranks: int, n_lines: int) -> None:
    """Logs of a job in which all ranks but one gave up after ten minutes."""
    for rank in range(n_ranks):
        host, pid = f"node{rank // 8:03}", 1000 + rank
        lines = [f"[rank{rank}]: step {i} loss 2.{i:04}" for i in range(n_lines)]
        lines.insert(0, f"{host}:{pid}:{pid} [{rank % 8}] NCCL INFO ncclCommInitRank comm 0x55d0"
                        f" rank {rank} nranks {n_ranks} cudaDev {rank % 8} nvmlDev {rank % 8}"
                        " busId 1000 commId 0x1234 - Init COMPLETE")  # fmt: skip
        if rank != n_ranks // 2:
            lines.append(
                f"[rank{rank}]:[E414 16:17:16.25 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog"
                " caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE,"
                " NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600021 milliseconds"
                " before timing out."
            )
        (place / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")


def write_call_logs(place: Path, n_ranks: int, n_calls: int) -> None:
    """Logs with each call of NCCL; all ranks but one are in a call that this one did not make."""
    for rank in range(n_ranks):
        host, pid, device = f"node{rank // 8:03}", 1000 + rank, rank % 8
        head = f"{host}:{pid}:{pid} [{device}] NCCL INFO"
        comm = (f"comm 0x55d{rank:03x} rank {rank} nranks {n_ranks} cudaDev {device} nvmlDev"
                f" {device} busId {device + 1}000 commId 0x1234")  # fmt: skip
        lines = [f"{head} ncclCommInitRank {comm} - Init START"]
        lines += [
            f"{head} Channel {channel:02}/0 : {rank}[{device}] -> {(rank + 1) % n_ranks}[0] [send]"
            f" via NET/IB/{device}" for channel in range(8)
        ]  # fmt: skip
        lines.append(f"{head} ncclCommInitRank {comm} - Init COMPLETE")
        is_late = rank == n_ranks // 2
        lines += [
            f"{head} AllReduce: opCount {call:x} sendbuff 0x7f0000000000 recvbuff 0x7f0000000000"
            f" count 4096 datatype 7 op 0 root 0 comm 0x55d{rank:03x} [nranks={n_ranks}] stream"
            " 0x55e0" for call in range(n_calls - is_late)
        ]  # fmt: skip
        if not is_late:
            lines.append(
                f"[rank{rank}]:[E414 16:17:16.25 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog"
                f" caught collective operation timeout: WorkNCCL(SeqNum={n_calls},"
                " OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for"
                " 600021 milliseconds before timing out."
            )
        (place / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")


def recorded(n_ranks: int, n_absent: int) -> tuple[HangEvent, tuple[Communicator, ...]]:
    """As black boxes tell it: all but some ranks are in an op of the world; groups of eight had
    theirs before."""
    world = comm(0, range(n_ranks))
    groups = [comm(1 + g, range(8 * g, 8 * g + 8)) for g in range(n_ranks // 8)]
    absent = {k * (n_ranks // n_absent) for k in range(n_absent)}
    here = [rank for rank in range(n_ranks) if rank not in absent]
    told = [came(rank, 0, 8 if rank in absent else 9, 8) for rank in range(n_ranks)]
    told += [came(rank, 1 + rank // 8, 40) for rank in range(n_ranks)]
    return event(n_ranks, [op(rank, 0, AR, 9) for rank in here], told), (world, *groups)


class Cost(NamedTuple):
    """What one waits, and the CPU time of this process and of those that it has waited for."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:.2f} s (CPU {self.cpu_s:.2f} s)"


def cost_of(work: Callable[[], object]) -> Cost:
    """What it costs once."""
    begin = Cost(perf_counter(), all_cpu_s())
    work()
    return Cost(perf_counter() - begin.wall_s, all_cpu_s() - begin.cpu_s)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The median CPU time."""
    return statistics.median(cost_of(work).cpu_s for _ in range(repeats))


def files_cost(place: Path, repeats: int = 3) -> tuple[Cost, RunReport]:
    """What a verdict on a folder costs at best, and the report."""
    return min(cost_of(lambda: diagnose([place])) for _ in range(repeats)), diagnose([place])


def dumps_cost(place: Path, repeats: int = 3) -> tuple[Cost, float, RunReport]:
    """What a verdict on a folder of dumps costs at best, the CPU time of unpickling them alone, by
    turns; and the report."""
    costs: list[tuple[Cost, float]] = []
    pickles = [path.read_bytes() for path in place.iterdir()]
    for _ in range(repeats):
        cost = cost_of(lambda: diagnose([place]))
        costs.append((cost, seconds(lambda: unpickle(pickles), repeats=1)))
    return min(cost for cost, _ in costs), min(bare for _, bare in costs), diagnose([place])


def unpickle(pickles: Iterable[bytes]) -> None:
    """All of them, one after the other."""
    for data in pickles:
        pickle.loads(data)  # noqa: S301


def split_cost(place: Path) -> tuple[Cost, Cost, tuple[Verdict, ...]]:
    """What reading a folder and judging what it holds cost, each once, and the verdicts."""
    found: list[JobEvidence] = []
    verdicts: list[Verdict] = []
    read = cost_of(lambda: found.append(gather([place]).job))
    judged = cost_of(lambda: verdicts.extend(judge_job(found[0])))
    return read, judged, tuple(verdicts)


def all_cpu_s() -> float:
    """CPU time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def main() -> None:
    with TemporaryDirectory() as name:
        place = Path(name)
        write_dumps(place, stopped_job(8, 8, 16, 5, late=517), 200)
        show_dumps(DUMPS, place)
    with TemporaryDirectory() as name:
        place = Path(name)
        write_dumps(place, stopped_job(2, 2, 4, 60, late=5), 2_000)
        show_dumps(LONG_DUMPS, place)
    with TemporaryDirectory() as name:
        place = Path(name)
        write_logs(place, 1024, 500)
        show(LOGS, *files_cost(place))
    with TemporaryDirectory() as name:
        place = Path(name)
        write_call_logs(place, 1024, 92)
        read, judged, verdicts = split_cost(place)
        print(f"  {CALL_LOGS}: read {read}, judged {judged} ({verdicts[0].cause})")
    for n_ranks in (1_024, 8_192):
        for n_absent in (1, n_ranks // 2):
            event, comms = recorded(n_ranks, n_absent)
            cost_s = seconds(lambda e=event, c=comms: judge_hang(e, c))
            print(f"  {n_ranks:,} ranks, {n_absent:,} absent: {cost_s:.2f} s")


def show_dumps(label: str, place: Path) -> None:
    cost, bare_s, report = dumps_cost(place)
    show(f"{label}, {cost.cpu_s / bare_s:.1f} times unpickling alone", cost, report)


def show(label: str, cost: Cost, report: RunReport) -> None:
    first = report.verdicts[0]
    print(f"  {label}: {cost}, {first.cause} of {first.culprits[:3]}", flush=True)


if __name__ == "__main__":
    main()
