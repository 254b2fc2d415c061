"""Class 2: ranks take different paths, and an op is missing on some of them."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes_calls
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group
from tests.cases.diverging import TRAIN, Programs, played, scene, world, write_log
from tests.cases.field_case import Expected, FieldCase, Scene

ABSENT = (Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED)
GLOO = "[/src/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81]"


def uneven_batches(
    folder: Path, *, n_ranks: int, culprit: int, n_steps: int, n_reductions: int, is_json: bool
) -> Scene:
    """One rank has a batch less than the others, who reduce gradients of one step more."""
    step = [Call("0", "all_reduce", (1024 * (k + 1),)) for k in range(n_reductions)]
    programs = dict.fromkeys(range(n_ranks), step * n_steps)
    fewer = programs | {culprit: step * (n_steps - 1)}
    return scene(
        folder, played(world(n_ranks), fewer), Expected(ABSENT, (culprit,)),
        played(world(n_ranks), programs), is_json=is_json,
    )  # fmt: skip


def joined_on_cpu(
    folder: Path, *, n_ranks: int, culprit: int, n_steps: int, n_reductions: int
) -> Scene:
    """A rank whose data are used up does not come to the barrier on the CPU group that begins a
    step; the text about the time limit is of gloo."""
    ranks = tuple(range(n_ranks))
    groups = {"0": Group("default_pg", ranks), "1": Group("undefined", ranks, "gloo")}
    step = [Call("1", "barrier", (1,))] + [Call("0", "all_reduce", (4096,))] * n_reductions
    programs = {key: [*(step * n_steps), step[0]] for key in ranks}
    short = programs | {culprit: step * n_steps}
    fault, twin = played(groups, short), played(groups, dict.fromkeys(ranks, step * n_steps))
    made = scene(
        folder, fault, Expected(ABSENT, (culprit,), told=(codes_calls.ON_CPU_GROUP,)), twin
    )
    for rank in set(ranks) - {culprit}:
        text = f"{GLOO} Timed out waiting 1800000ms for recv operation to complete"
        write_log(folder / "fault" / f"rank_{rank}.log", [(1810.0, text)])
    return made


def idle_expert(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], n_layers: int, is_json: bool,
    run_ahead: int,
) -> Scene:  # fmt: skip
    """Experts without tokens reduce no gradients: their reduce-scatter is left out."""
    layer = [
        Call("0", "all_gather", (1024,), site=TRAIN),
        Call("0", "reduce_scatter", (4096, 1024), site=("post_backward fsdp.py", *TRAIN)),
        Call("0", "reduce_scatter", (1024,), site=("post_backward fsdp.py", *TRAIN)),
    ]
    step = [*layer * n_layers, Call("0", "all_reduce", (1,))]
    last = [*layer * (n_layers - 1), layer[0], layer[2], step[-1]]
    programs = dict.fromkeys(range(n_ranks), step * 5)
    fewer = programs | {key: [*(step * 4), *last] for key in culprits}
    idle = {key: [*(step * 4), *last] for key in range(n_ranks)}
    return scene(
        folder, played(world(n_ranks), fewer, run_ahead=run_ahead),
        Expected((Cause.CONTROL_FLOW_SKIP,), culprits, told=(codes_calls.SKIPPED_CALLS,)),
        played(world(n_ranks), idle, run_ahead=run_ahead), is_json=is_json,
    )  # fmt: skip


def group_never_used(
    folder: Path, *, n_ranks: int, users: tuple[int, ...], n_steps: int, is_sparse: bool, ring: int
) -> Scene:
    """A stage without experts never joins the expert group, of which it is a member."""
    groups = world(n_ranks) | {"1": Group("EXPERT_DATA_PARALLEL_GROUP", tuple(range(n_ranks)))}
    step = [Call("0", "all_reduce", (512,)), Call("0", "all_gather", (64,))]
    expert = Call("1", "reduce_scatter", (2048,))
    programs: Programs = {
        rank: step * n_steps + [expert] * (rank in users) + step for rank in range(n_ranks)
    }
    culprits = tuple(rank for rank in range(n_ranks) if rank not in users)
    everybody = dict.fromkeys(range(n_ranks), step * n_steps + [expert] + step)
    return scene(
        folder, played(groups, programs),
        Expected(ABSENT, culprits, told=(codes_calls.NEVER_USED,)),
        played(groups, everybody), is_sparse=is_sparse, ring=ring,
    )  # fmt: skip


def stale_check(
    folder: Path, *, n_ranks: int, loader: int, file: str, name: str, run_ahead: int
) -> Scene:
    """One rank saw the checkpoint and broadcasts from its load, the others went on to training."""
    start = [Call("0", "broadcast", (8,)), Call("0", "barrier", (1,)), Call("0", "broadcast", (2,))]
    load = Call(
        "0", "broadcast", (1,), site=("broadcast_object dist.py", f"{name} {file}", "main run.py")
    )
    train = Call(
        "0", "all_reduce", (1,), site=("sync_metrics loop.py", "fit loop.py", "main run.py")
    )
    programs = {key: [*start, train, train, train] for key in range(n_ranks)}
    split = programs | {loader: [*start, load, train, train]}
    together = {key: [*start, load, train, train] for key in range(n_ranks)}
    return scene(
        folder, played(world(n_ranks), split, run_ahead=run_ahead),
        Expected(
            (Cause.CONTROL_FLOW_SKIP,), (loader,),
            told=(codes_calls.CALL_SITE, codes_calls.DOES_WORK),
        ),
        played(world(n_ranks), together, run_ahead=run_ahead),
    )  # fmt: skip


def saved_alone(
    folder: Path, *, n_ranks: int, saver: int, n_steps: int, name: str, op: str
) -> Scene:
    """The save that only one rank calls is a collective."""
    step = [
        Call("0", "all_reduce", (25_000_000,), site=TRAIN),
        Call("0", "all_gather", (64,), site=TRAIN),
    ]
    save = Call("0", op, (1,), site=("barrier dist.py", f"{name} engine.py", "fit loop.py"))
    programs = dict.fromkeys(range(n_ranks), step * (n_steps + 1))
    alone = programs | {saver: [*step * n_steps, save]}
    together = {key: [*(step * n_steps), save, *step] for key in range(n_ranks)}
    return scene(
        folder, played(world(n_ranks), alone, run_ahead=1),
        Expected((Cause.EXTRA_COLLECTIVE,), (saver,), told=(codes_calls.CALL_SITE,)),
        played(world(n_ranks), together, run_ahead=1),
    )  # fmt: skip


def recomputed(
    folder: Path, *, n_ranks: int, culprit: int, n_gathers: int, place: int, run_ahead: int
) -> Scene:
    """One rank's compiler chose to gather a parameter again in the backward pass."""
    made = ("call /tmp/torchinductor_me/ab/cabc.py", "backward functional.py", *TRAIN)
    step = [Call("0", "all_gather", (64 * (1 + k % 5),), site=made) for k in range(n_gathers)]
    step += [Call("0", "reduce_scatter", (4096,), site=made), Call("0", "all_reduce", (1,))]
    again = [*step[: place + 1], *step[place:]]
    programs = dict.fromkeys(range(n_ranks), step * 6)
    one_more = programs | {culprit: [*step * 5, *again]}
    # the others repeat it too: all graphs are the same
    alike = {key: [*(step * 5), *again] for key in range(n_ranks)}
    return scene(
        folder, played(world(n_ranks), one_more, run_ahead=run_ahead),
        Expected(
            (Cause.CONTROL_FLOW_SKIP, Cause.EXTRA_COLLECTIVE), (culprit,),
            told=(codes_calls.EXTRA_CALLS, codes_calls.GENERATED_CODE),
        ),
        played(world(n_ranks), alike, run_ahead=run_ahead),
    )  # fmt: skip


def cold_caches(
    folder: Path, *, n_ranks: int, compiling: tuple[int, ...], last_s: float, line: str
) -> Scene:
    """Ranks with a warm cache wait in their first reduction for those that still compile. The twin:
    the last line about compiling is older than the waiting, so nothing tells that it lasts."""
    programs = dict.fromkeys(range(n_ranks), [Call("0", "all_reduce", (1024,))] * 3)
    job = FlightJob(world(n_ranks), {r: list(own) for r, own in programs.items()})
    job.host_stops = dict.fromkeys(compiling, 0)
    made = scene(
        folder, job.play(),
        Expected((Cause.LONG_LEGIT_OP,), compiling, told=(codes_calls.WORK_LOGGED,)),
        job, twin_expected=Expected((Cause.RANK_NOT_ENTERED,), compiling),
    )  # fmt: skip
    for rank in compiling:
        times = [last_s * part for part in (0.0, 0.2, 0.6, 1.0)]
        write_log(folder / "fault" / f"rank{rank}.log", [(at_s, line) for at_s in times])
        write_log(folder / "twin" / f"rank{rank}.log", [(-300.0 + k, line) for k in range(4)])
    return made


def slow_save(folder: Path, *, n_ranks: int, saver: int, n_calls: int, until_s: int) -> Scene:
    """One rank still writes the checkpoint while the others are in the next forward pass. The twin:
    it has said that it is done, and then does not come."""
    programs = dict.fromkeys(range(n_ranks), [Call("0", "all_reduce", (4096,))] * (n_calls + 2))
    job = FlightJob(world(n_ranks), {r: list(own) for r, own in programs.items()})
    job.host_stops = {saver: n_calls}
    made = scene(
        folder, job.play(),
        Expected((Cause.LONG_LEGIT_OP,), (saver,), told=(codes_calls.WORK_LOGGED,)),
        job, twin_expected=Expected((Cause.RANK_NOT_ENTERED,), (saver,)),
    )  # fmt: skip
    done = [
        (at_s, f"Saving checkpoint shard {at_s} of {until_s}: {100 * at_s // (until_s + 1)}%")
        for at_s in range(1, until_s, until_s // 8)
    ]
    write_log(folder / "fault" / f"rank{saver}.log", done)
    ended = [*done, (until_s, "saved checkpoint to /data/step_900")]
    write_log(folder / "twin" / f"rank{saver}.log", ended)
    return made


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        6,
        "uneven numbers of batches",
        uneven_batches,
        tuple(
            {"n_ranks": n, "culprit": c, "n_steps": s, "n_reductions": r, "is_json": j}
            for n, c, s, r, j in ((4, 2, 100, 3, False), (8, 0, 12, 1, True), (32, 31, 5, 7, False))
        ),
    ),
    FieldCase(
        7,
        "data used up, told by the group on the CPU",
        joined_on_cpu,
        tuple(
            {"n_ranks": n, "culprit": c, "n_steps": s, "n_reductions": r}
            for n, c, s, r in ((4, 3, 6, 2), (8, 0, 3, 1), (2, 1, 9, 3))
        ),
    ),
    FieldCase(
        8,
        "gradients of experts without tokens",
        idle_expert,
        tuple(
            {"n_ranks": n, "culprits": c, "n_layers": k, "is_json": j, "run_ahead": r}
            for n, c, k, j, r in (
                (4, (1,), 3, False, 8),
                (8, (0, 5), 2, True, 6),
                (16, (15,), 6, False, 20),
            )
        ),
    ),
    FieldCase(
        9,
        "a group that some members never use",
        group_never_used,
        tuple(
            {"n_ranks": n, "users": u, "n_steps": s, "is_sparse": p, "ring": r}
            for n, u, s, p, r in (
                (4, (2, 3), 5, True, 10_000),
                (8, (4, 5, 6, 7), 20, True, 12),
                (4, (0, 1, 3), 9, False, 10),
            )
        ),
    ),
    FieldCase(
        10,
        "one rank resumes from a checkpoint",
        stale_check,
        tuple(
            {"n_ranks": n, "loader": k, "file": f, "name": name, "run_ahead": r}
            for n, k, f, name, r in (
                (4, 0, "trainer/checkpoint.py", "load", 1),
                (8, 3, "loop.py", "load_checkpoint", 2),
                (3, 2, "ckpt.py", "restore", 1),
            )
        ),
    ),
    FieldCase(
        11,
        "a save that one rank calls alone",
        saved_alone,
        tuple(
            {"n_ranks": n, "saver": k, "n_steps": s, "name": name, "op": op}
            for n, k, s, name, op in (
                (4, 0, 38, "save_checkpoint", "barrier"),
                (8, 7, 3, "save", "broadcast"),
                (5, 2, 12, "_save_model", "barrier"),
            )
        ),
    ),
    FieldCase(
        12,
        "a collective that one compiled graph repeats",
        recomputed,
        tuple(
            {"n_ranks": n, "culprit": c, "n_gathers": g, "place": p, "run_ahead": r}
            for n, c, g, p, r in ((2, 1, 20, 16, 8), (2, 0, 9, 3, 6), (8, 5, 12, 11, 20))
        ),
    ),
    FieldCase(
        13,
        "cold compile caches",
        cold_caches,
        tuple(
            {"n_ranks": n, "compiling": c, "last_s": s, "line": line}
            for n, c, s, line in (
                (4, (2, 3), 700.0, "[INFO] Compiling a graph for dynamic shape"),
                (8, (0,), 120.0, "AUTOTUNE mm(4096x1024, 1024x4096)"),
                (2, (1,), 45.0, "I0414 compiling function forward in model.py"),
            )
        ),
    ),
    FieldCase(
        14,
        "one rank writes the checkpoint",
        slow_save,
        tuple(
            {"n_ranks": n, "saver": k, "n_calls": c, "until_s": s}
            for n, k, c, s in ((8, 0, 900, 640), (4, 3, 20, 90), (2, 1, 5, 300))
        ),
    ),
)
