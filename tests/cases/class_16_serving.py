"""Class 16: inference serving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_calls, codes_logs
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.verdict import Cause
from comminsight.pipeline.flight_recorder import flight_evidence
from tests.builders.flight_recorder import T0, Call, FlightJob, Group, write_dumps
from tests.cases.diverging import played, scene, world, write_log
from tests.cases.field_case import SILENT, Expected, FieldCase, Scene

MS, S = 1_000_000, 1_000_000_000


def own_kernel(
    folder: Path, *, n_ranks: int, stuck: tuple[int, ...], kernel: str, length_ns: int
) -> Scene:
    """A rank does not leave a hand-written all-reduce; the library has nothing pending. The twin:
    the trace ends while that kernel runs, as it always does."""
    programs = {rank: [Call("0", "all_reduce", (4096,))] * 6 for rank in range(n_ranks)}
    job = FlightJob(world(n_ranks), programs).play()
    (folder / "dumps").mkdir()
    seen = flight_evidence(write_dumps(folder / "dumps", job))

    def trace(last_ns: int) -> list[Activity]:
        made = [
            Activity(
                global_rank=rank, kind=ActivityKind.COMMUNICATION, name=kernel, is_library=False,
                start_ns=T0 + n * 10 * MS, end_ns=T0 + n * 10 * MS + length_ns,
            )
            for rank in range(n_ranks) for n in range(20)
        ]  # fmt: skip
        begin_ns = T0 + 20 * 10 * MS
        for rank in range(n_ranks):
            end_ns = 0 if rank in stuck else begin_ns + length_ns
            made.append(replace(made[0], global_rank=rank, start_ns=begin_ns, end_ns=end_ns))
            made.append(
                Activity(
                    global_rank=rank,
                    kind=ActivityKind.OTHER,
                    name="poll",
                    start_ns=begin_ns + last_ns,
                    end_ns=begin_ns + last_ns + 1000,
                )
            )
        return made

    return Scene(
        replace(seen, activities=tuple(trace(30 * S))),
        Expected(
            (Cause.ALL_PRESENT_STUCK,), (),
            told=(codes_calls.KERNEL_OPEN, codes_calls.NOTHING_PENDING),
        ),
        replace(seen, activities=tuple(trace(length_ns // 2))), SILENT,
    )  # fmt: skip


def left_the_lock_step(
    folder: Path, *, n_ranks: int, culprit: int, n_steps: int, n_layers: int, twin_steps: int
) -> Scene:
    """A rank without requests coordinates again and again without the layers between. The twin: so
    early in the job nobody can tell the odd one of two."""
    ranks = tuple(range(n_ranks))
    groups = {"0": Group("DP_GROUP", ranks), "1": Group("EP_GROUP", ranks)}
    step = [Call("0", "all_reduce", (1,)), *[Call("1", "all_to_all", (64,))] * n_layers]
    scenes = {}
    for name, steps in (("fault", n_steps), ("twin", twin_steps)):
        programs = dict.fromkeys(ranks, step * (steps + 1))
        programs[culprit] = [*step * steps, *[step[0]] * 3]
        scenes[name] = played(groups, programs, run_ahead=1)
    circle = Expected((Cause.CROSS_GROUP_CYCLE,), (0, 1))
    return scene(
        folder, scenes["fault"],
        Expected((Cause.CONTROL_FLOW_SKIP,), (culprit,)),
        scenes["twin"], twin_expected=circle,
    )  # fmt: skip


def host_stuck(folder: Path, *, n_engines: int, n_running: int, style: str, n_lines: int) -> Scene:
    """No token comes out though requests run, and no device has anything to do. The twin: no
    request runs, so the server only waits."""
    for name, running in (("fault", n_running), ("twin", 0)):
        programs = {rank: [Call("0", "all_reduce", (512,))] * 9 for rank in range(n_engines)}
        (folder / name).mkdir()
        write_dumps(folder / name, FlightJob(world(n_engines), programs).play())
        for engine in range(n_engines):
            lines = [(float(10 * n), style.format(rate=35.5, running=3)) for n in range(3)]
            lines += [
                (40.0 + 10 * n, style.format(rate=0.0, running=running)) for n in range(n_lines)
            ]
            write_log(folder / name / f"engine_{engine}.log", lines)
    return Scene(
        folder / "fault",
        Expected(told=(codes_calls.NOTHING_PENDING, codes_calls.LOOK_AT_HOST)),
        folder / "twin",
        Expected((Cause.HEALTHY_IDLE,), (), told=(codes_calls.SERVING_RATE,)),
    )


def stuck_on_cpu(folder: Path, *, n_ranks: int, n_before: int, op: str, absent: int) -> Scene:
    """All ranks are inside one collective of a CPU group. The twin lacks the dump of one."""
    calls = [
        *[Call("0", "all_gather", (16,))] * n_before,
        Call("0", op, (16,)),
        Call("0", op, (16,)),
    ]
    programs = {rank: list(calls) for rank in range(n_ranks)}
    job = FlightJob(world(n_ranks), programs, backend="gloo", run_ahead=1)
    job.dead.add((0, n_before))
    return scene(
        folder, job.play(),
        Expected(
            (Cause.ALL_PRESENT_STUCK,), (),
            told=(codes_calls.ON_CPU_GROUP, codes_calls.CHECK_CPU_NETWORK),
        ),
        job, twin_ranks=[rank for rank in range(n_ranks) if rank != absent],
    )  # fmt: skip


def opposite_orders(
    folder: Path, *, n_ranks: int, odd: tuple[int, ...], named: tuple[int, ...], n_steps: int,
    descs: tuple[str, str],
) -> Scene:  # fmt: skip
    """Two groups of the same ranks, whose ops some ranks called the other way round. The twin: all
    call them that way."""
    ranks = tuple(range(n_ranks))
    groups = {"0": Group(descs[0], ranks), "1": Group(descs[1], ranks)}
    first, second = Call("0", "all_to_all", (256,)), Call("1", "all_gather", (4,))
    step = [first, second]
    programs = dict.fromkeys(ranks, step * (n_steps + 1))
    mixed = programs | {rank: [*step * n_steps, second, first] for rank in odd}
    swapped = {rank: [*step * n_steps, second, first] for rank in ranks}
    return scene(
        folder, FlightJob(groups, mixed).play(),
        Expected((Cause.ORDER_INVERSION,), named),
        FlightJob(groups, swapped).play(),
    )  # fmt: skip


def watchdogs(folder: Path, *, n_ranks: int, silent: int, seq: int, op: str, group: str) -> Scene:
    """All ranks but one print that they wait; of the silent one nothing is known. The twin has the
    lines of all of them: all are inside."""

    def lines(rank: int) -> str:
        head = f"[rank{rank}]:[E414 16:17:16.2 ProcessGroupNCCL.cpp:629]"
        work = (
            f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000)"
        )
        made = (
            f"node0:{400 + rank}:{500 + rank} [{rank}] NCCL INFO ncclCommInitRank comm"
            f" 0x7f0{rank:x} rank {rank} nranks {n_ranks} cudaDev {rank} nvmlDev {rank}"
            f" busId {0x1B000 + rank:x} commId 0xabc - Init COMPLETE\n"
        )
        return (
            f"{made}{head} [Rank {rank}] Watchdog caught collective operation timeout: {work} ran"
            f" for 600029 milliseconds before timing out.\n{head} [PG ID 0 PG GUID 0({group}) Rank"
            f" {rank}] Exception (either an error or timeout) detected by watchdog at work: {seq},"
            f" last enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}.\n"
        )

    for name, ranks in (
        ("fault", [r for r in range(n_ranks) if r != silent]),
        ("twin", range(n_ranks)),
    ):
        (folder / name).mkdir()
        (folder / name / "server.log").write_text("".join(map(lines, ranks)))
    return Scene(
        folder / "fault",
        Expected(told=(codes_logs.SILENT_RANKS, codes_logs.GATHER_STACKS)),
        folder / "twin",
        Expected((Cause.ALL_PRESENT_STUCK,), (), told=(codes_logs.GATHER_STACKS,)),
    )


def notify_wait(
    folder: Path, *, code: str, waiting: Sequence[int], remote: int | None, cause: Cause | None,
    twin_line: str,
) -> Scene:  # fmt: skip
    """HCCL tells for whom a rank waits, who says nothing itself. The twin: that rank waits for one
    of the others, or nothing of the kind is told."""
    told = {"EI0002": codes_calls.NOTIFY_TIMEOUT, "EI0006": codes_calls.CONNECT_TIMEOUT}[code]
    texts = {
        "EI0002": "EI0002: The wait execution of the Notify register times out. Reason: the Notify"
        " register has not received the Notify record from remote rank [{}]. base information: ["
        "group size: 32, local rank: {}]",
        "EI0006": "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in"
        " time. remote rank: {}, local rank {}",
    }
    for name in ("fault", "twin"):
        (folder / name).mkdir()
        for rank in waiting:
            said = texts[code].format("unknown" if remote is None else remote, rank)
            is_told = name == "fault" or not twin_line
            lines = [(1800.0 + rank, said)] if is_told else [(1.0, twin_line)]
            write_log(folder / name / f"plog_rank{rank}.log", lines)
    if not twin_line:
        said = texts[code].format(waiting[0], remote)
        write_log(folder / "twin" / f"plog_rank{remote}.log", [(1790.0, said)])
    if cause is None:
        expected = Expected(told=(told, codes_calls.MISSING_LINK_STATE))
    else:
        culprits = () if remote is None else (remote,)
        expected = Expected((cause,), culprits, told=(told, codes_calls.READ_FIRST_NOTIFY))
    return Scene(folder / "fault", expected, folder / "twin")


VLLM = (
    "INFO metrics.py:455] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {rate}"
    " tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: 0 reqs"
)
SGLANG = (
    "Decode batch. #running-req: {running}, #token: 900, gen throughput (token/s): {rate},"
    " #queue-req: 0"
)

CASES: tuple[FieldCase, ...] = (
    FieldCase(
        133,
        "a kernel that communicates by itself does not end",
        own_kernel,
        tuple(
            {"n_ranks": n, "stuck": s, "kernel": k, "length_ns": ns}
            for n, s, k, ns in (
                (8, (2,), "cross_device_reduce_1stage", 20_000),
                (4, (0, 1, 2, 3), "one_shot_push", 9_000),
                (2, (1,), "two_shot_all_reduce_kernel", 150_000),
            )
        ),
    ),
    FieldCase(
        134,
        "a rank without requests leaves the lock step",
        left_the_lock_step,
        tuple(
            {"n_ranks": 2, "culprit": c, "n_steps": s, "n_layers": k, "twin_steps": t}
            for c, s, k, t in ((1, 12, 2, 1), (0, 30, 5, 0), (1, 5, 1, 1))
        ),
    ),
    FieldCase(
        135,
        "the host stands still",
        host_stuck,
        tuple(
            {"n_engines": n, "n_running": r, "style": s, "n_lines": k}
            for n, r, s, k in ((4, 4, VLLM, 3), (2, 1, SGLANG, 2), (8, 17, VLLM, 6))
        ),
    ),
    FieldCase(
        136,
        "all present in a collective of a CPU group",
        stuck_on_cpu,
        tuple(
            {"n_ranks": n, "n_before": b, "op": op, "absent": a}
            for n, b, op, a in (
                (16, 1, "all_gather", 3), (4, 9, "all_reduce", 0), (2, 2, "barrier", 1),
            )
        ),
    ),
    FieldCase(
        137,
        "two streams without an order between them",
        opposite_orders,
        tuple(
            {"n_ranks": n, "odd": o, "named": w, "n_steps": s, "descs": ("EP_GROUP", "DP_META")}
            for n, o, w, s in ((2, (1,), (0, 1), 0), (8, (5,), (5,), 3), (4, (0,), (0,), 50))
        ),
    ),
    FieldCase(
        138,
        "ranks decide locally whether to overlap",
        opposite_orders,
        tuple(
            {"n_ranks": n, "odd": o, "named": w, "n_steps": s, "descs": ("TP_GROUP", "PP_GROUP")}
            for n, o, w, s in ((2, (1,), (1,), 8), (2, (0,), (0,), 20), (6, (1, 4), (1, 4), 8))
        ),
    ),
    FieldCase(
        139,
        "watchdog lines of all ranks but one",
        watchdogs,
        tuple(
            {"n_ranks": n, "silent": s, "seq": q, "op": op, "group": g}
            for n, s, q, op, g in (
                (8, 3, 4_711, "ALLREDUCE", "default_pg"),
                (4, 0, 90, "_ALLGATHER_BASE", "default_pg"),
                (16, 9, 12, "BROADCAST", "default_pg"),
            )
        ),
    ),
    FieldCase(
        140,
        "error codes of Ascend's library",
        notify_wait,
        tuple(
            {"code": c, "waiting": w, "remote": r, "cause": cause, "twin_line": line}
            for c, w, r, cause, line in (
                ("EI0002", (25,), 24, Cause.RANK_NOT_ENTERED, ""),
                ("EI0002", (0, 1, 3), 2, Cause.RANK_NOT_ENTERED, ""),
                ("EI0002", (25,), None, None, "EJ0001: something else"),
                ("EI0006", (7, 6), 1, Cause.INIT_STUCK, "socket established with remote rank 1"),
            )
        ),
    ),
)  # fmt: skip
