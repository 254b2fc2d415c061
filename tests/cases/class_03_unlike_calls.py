"""Class 3: order, shape or element type of an op differ, or only seem to."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes, codes_calls
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob
from tests.cases.diverging import TRAIN, played, scene, world, write_log
from tests.cases.field_case import SILENT, Expected, FieldCase, Scene
from tests.cases.nccl_calls import NcclCall, NcclLogs


def unlike_after_prefix(
    folder: Path, *, n_ranks: int, culprit: int, n_before: int, last: tuple[NcclCall, NcclCall],
    cause: Cause, is_numbered: bool, is_one_file: bool,
) -> Scene:  # fmt: skip
    """After many equal calls one rank calls something else. The twin: its last line is missing."""
    start = [NcclCall("Broadcast", 16)] * n_before
    start += [NcclCall("AllReduce", n) for n in (512, 128, 128)] + [NcclCall("AllGather", 1)]
    calls = dict.fromkeys(range(n_ranks), (*start, last[0]))
    odd = calls | {culprit: (*start, last[1])}
    fewer = calls | {culprit: tuple(start)}
    logs = NcclLogs(odd, is_numbered=is_numbered)
    return Scene(
        logs.write(folder / "fault", is_one_file=is_one_file),
        Expected((cause,), (culprit,), told=(codes_calls.COMMON_PREFIX, codes.SIGNATURE)),
        NcclLogs(fewer, is_numbered=is_numbered).write(folder / "twin", is_one_file=is_one_file),
    )


def list_and_flat(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], named: tuple[int, ...],
    n_before: int,
) -> Scene:  # fmt: skip
    """A gather of a list in a branch that some ranks take meets a flat one. The twin: both forms
    with the same tensor, which is one op."""
    step = Call("0", "all_reduce", (4096,), dtype="Float", site=TRAIN)
    flat = Call("0", "all_gather", (1024,), dtype="Float", site=("gather_metrics loop.py", *TRAIN))
    listed = Call(
        "0", "all_gather_list", (6,), dtype="Double", site=("on_epoch_end hook.py", *TRAIN)
    )
    same = flat._replace(op="all_gather_list")
    programs = {r: [*[step] * n_before, flat, step] for r in range(n_ranks)}
    unlike = programs | {r: [*[step] * n_before, listed, step] for r in culprits}
    alike = programs | {r: [*[step] * n_before, same, step] for r in culprits}
    twin = FlightJob(world(n_ranks), alike, run_ahead=1)
    twin.dead.add((0, n_before))
    return scene(
        folder, played(world(n_ranks), unlike, run_ahead=1),
        Expected(
            (Cause.OP_TYPE_MISMATCH,), named, told=(codes_calls.CALL_FORM, codes_calls.CALL_SITE)
        ),
        twin.play(), twin_expected=Expected((Cause.ALL_PRESENT_STUCK,), ()),
    )  # fmt: skip


def root_ahead(
    folder: Path, *, n_ranks: int, root: int, silent: int, n_before: int, run_ahead: int
) -> Scene:
    """The root of a broadcast is past it, and in later ops; a rank that is silent has not come.
    The twin: of that rank there is no dump."""
    start = [Call("0", "all_reduce", (4096,))] * n_before
    rest = [
        Call("0", "broadcast", (5_164_000,)), Call("0", "broadcast", (16,)),
        Call("0", "all_gather", (513,)),
    ]  # fmt: skip
    programs = {rank: [*start, *rest] for rank in range(n_ranks)}
    job = FlightJob(world(n_ranks), programs, run_ahead=run_ahead)
    job.host_stops = {silent: n_before}
    for rank in range(n_ranks):
        if rank not in {root, silent}:
            job.host_stops[rank] = n_before + 1
    job.play()
    job.called[root] = n_before + 3
    job.over[root] |= {n_before, n_before + 1}
    return scene(
        folder, job, Expected((Cause.RANK_NOT_ENTERED,), (silent,)), job,
        twin_ranks=[rank for rank in range(n_ranks) if rank != silent],
        twin_expected=Expected(told=(codes.MISSING_RANKS,)),
    )  # fmt: skip


def unlike_settings(
    folder: Path, *, n_ranks: int, odd: tuple[int, ...], name: str, value: str, sizes: str,
    is_one_file: bool,
) -> Scene:  # fmt: skip
    """A setting on one node only: sizes of slices do not fit, the calls are the same. The twin has
    the setting everywhere."""
    calls = dict.fromkeys(
        range(n_ranks), tuple(NcclCall("AllReduce", 1024 * n) for n in range(1, 9))
    )
    warns = {odd[0]: [sizes]}
    unlike = NcclLogs(calls, settings={key: {name: value} for key in odd}, warns=warns)
    alike = NcclLogs(calls, settings={key: {name: value} for key in calls})
    return Scene(
        unlike.write(folder / "fault", is_one_file=is_one_file),
        Expected(
            (Cause.ENV_SKEW,), told=(codes_calls.SETTING_DIFFERS, codes_calls.SLICE_SIZES)
        ),
        alike.write(folder / "twin", is_one_file=is_one_file), SILENT,
    )  # fmt: skip


def calls_agree(
    folder: Path, *, n_ranks: int, n_calls: int, warned: tuple[int, ...], sizes: str
) -> Scene:
    """NCCL complains of sizes although all ranks made the same calls with the same settings: nobody
    is accused of other calls. The twin: the warning alone, without the calls."""
    own = [NcclCall("ReduceScatter", 4096), NcclCall("AllGather", 512)]
    calls = dict.fromkeys(range(n_ranks), tuple(own[n % 2] for n in range(n_calls)))
    warns = {key: [sizes] for key in warned}
    bare = NcclLogs(dict.fromkeys(calls, ()), warns=warns)
    return Scene(
        NcclLogs(calls, warns=warns).write(folder / "fault"),
        Expected(told=(codes_calls.API_AGREES, codes_calls.DIFF_ENVIRONMENT)),
        bare.write(folder / "twin"),
        Expected(told=(codes_calls.MISSING_CALL_LINES, codes_calls.DIFF_ENVIRONMENT)),
    )


def another_order(
    folder: Path, *, n_ranks: int, odd: tuple[int, ...], named: tuple[int, ...], n_steps: int,
    sizes: tuple[int, ...], other_order: tuple[int, ...], run_ahead: int,
) -> Scene:  # fmt: skip
    """Parameters are released and gathered again at other moments on some ranks. The twin: all keep
    the other order."""
    step = [Call("0", "all_gather", (size,)) for size in sizes]
    moved = [step[place] for place in other_order]
    end = [Call("0", "all_reduce", (7,)), Call("0", "all_reduce", (9,))]
    programs = {rank: [*step, *end] * n_steps + [*step, *end] for rank in range(n_ranks)}
    mixed = programs | {rank: [*step, *end] * n_steps + [*moved, *end] for rank in odd}
    alike = {rank: [*step, *end] * n_steps + [*moved, *end] for rank in range(n_ranks)}
    return scene(
        folder, played(world(n_ranks), mixed, run_ahead=run_ahead),
        Expected((Cause.ORDER_INVERSION,), named, told=(codes_calls.PERMUTED_CALLS,)),
        played(world(n_ranks), alike, run_ahead=run_ahead),
    )  # fmt: skip


def dropped_sample(
    folder: Path, *, n_ranks: int, culprit: int, shape: tuple[int, ...], dim: int, by: int,
    is_json: bool,
) -> Scene:  # fmt: skip
    """One rank's tensor is longer by one. The twin exchanges uneven parts, as is allowed."""
    other = tuple(n + by * (place == dim) for place, n in enumerate(shape))
    same = {rank: [Call("0", "all_gather", shape)] * 2 for rank in range(n_ranks)}
    odd = same | {culprit: [Call("0", "all_gather", other)] * 2}
    uneven = {rank: [Call("0", "all_to_all", (10 + rank,))] * 2 for rank in range(n_ranks)}
    twin = FlightJob(world(n_ranks), uneven, dead={(0, 0)}).play()
    return scene(
        folder, played(world(n_ranks), odd),
        Expected((Cause.SHAPE_MISMATCH,), (culprit,), told=(codes_calls.SHAPE_DIFFERS,)),
        twin, twin_expected=Expected((Cause.ALL_PRESENT_STUCK,), ()), is_json=is_json,
    )  # fmt: skip


def fingerprints(
    folder: Path, *, n_ranks: int, culprit: int, shape: str, other: str, op: str
) -> Scene:
    """The same as the check of debug level DETAIL tells it. The twin: no prefix tells whose ranks
    they are."""

    def line(rank: int, seen: int) -> str:
        own, its = (
            f"CollectiveFingerPrint(SequenceNumber=7, OpType={op}, TensorShape=[{s}],"
            " TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float))"
            for s in ((other, shape) if rank == culprit else (shape, other))
        )
        return (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank"
            f" {rank} is running collective: {own}, but Rank {seen} is running collective: {its}."
        )

    for name, prefix in (("fault", True), ("twin", False)):
        (folder / name).mkdir()
        text = "".join(
            (f"[rank{rank}]: " if prefix else "")
            + line(rank, culprit if rank != culprit else (culprit + 1) % n_ranks) + "\n"
            for rank in range(n_ranks)
        )  # fmt: skip
        (folder / name / "job.log").write_text(text)
    told = (codes_calls.FINGERPRINT, codes_calls.SHAPE_DIFFERS)
    return Scene(
        folder / "fault", Expected((Cause.SHAPE_MISMATCH,), (culprit,), told=told),
        folder / "twin", Expected((Cause.SHAPE_MISMATCH,), (), told=told),
    )  # fmt: skip


def cpu_sizes(folder: Path, *, received: int, expected: int, rank: int, cause: Cause) -> Scene:
    """gloo aborts because another collective's bytes came. The twin only waited for long."""
    place = "[/src/third_party/gloo/gloo/transport/tcp/pair.cc:534]"
    for name, text in (
        ("fault", f"{place} op.preamble.length <= op.nbytes. {received} vs {expected}"),
        ("twin", f"{place} Timed out waiting 1800000ms for recv operation to complete"),
    ):
        (folder / name).mkdir()
        write_log(folder / name / f"rank{rank}.log", [(12.0, text)])
    return Scene(
        folder / "fault",
        Expected((cause,), (), told=(codes_calls.GLOO_SIZES, codes_calls.MISSING_SENDER)),
        folder / "twin",
    )


def shape_of_dumps_or_logs(folder: Path, **variant: object) -> Scene:
    return fingerprints(folder, **variant) if "op" in variant else dropped_sample(folder, **variant)  # type: ignore[arg-type]


GATHERS = (NcclCall("AllGather", 480), NcclCall("AllGather", 479))

CASES: tuple[FieldCase, ...] = (
    FieldCase(
        15,
        "the first call that differs, by NCCL's log",
        unlike_after_prefix,
        tuple(
            {"n_ranks": n, "culprit": c, "n_before": b, "last": pair, "cause": cause,
             "is_numbered": numbered, "is_one_file": one}
            for n, c, b, pair, cause, numbered, one in (
                (4, 2, 640, GATHERS, Cause.SHAPE_MISMATCH, True, True),
                (8, 0, 3, GATHERS, Cause.SHAPE_MISMATCH, False, False),
                (5, 4, 50, (NcclCall("AllReduce", 9), NcclCall("ReduceScatter", 9)),
                 Cause.OP_TYPE_MISMATCH, True, False),
                (3, 1, 12, (NcclCall("AllReduce", 9), NcclCall("AllReduce", 9, "bfloat16")),
                 Cause.DTYPE_MISMATCH, True, True),
            )
        ),
    ),
    FieldCase(
        16,
        "a list form meets a flat form",
        list_and_flat,
        tuple(
            {"n_ranks": n, "culprits": c, "named": w, "n_before": b}
            for n, c, w, b in (
                (2, (1,), (0, 1), 54), (8, (3,), (3,), 5),
                (4, (0,), (0,), 9),
            )
        ),
    ),
    FieldCase(
        17,
        "the root of a broadcast runs ahead",
        root_ahead,
        tuple(
            {"n_ranks": n, "root": r, "silent": s, "n_before": b, "run_ahead": a}
            for n, r, s, b, a in ((4, 0, 3, 40, 6), (8, 5, 1, 12, 8), (3, 2, 0, 7, 4))
        ),
    ),
    FieldCase(
        18,
        "a setting on one node only",
        unlike_settings,
        tuple(
            {"n_ranks": n, "odd": o, "name": k, "value": v, "sizes": s, "is_one_file": f}
            for n, o, k, v, s, f in (
                (2, (0,), "NCCL_BUFFSIZE", "1048576",
                 "NET/IB : collective mismatch error, local size 496640 remote size 65536", False),
                (8, (4, 5, 6, 7), "NCCL_LL128_BUFFSIZE", "65536",
                 "NET/Socket : message truncated : receiving 524288 bytes instead of 65536", True),
                (4, (3,), "NCCL_PROTO", "LL",
                 "Message truncated : received 8192 bytes instead of 512", False),
            )
        ),
    ),
    FieldCase(
        19,
        "sizes that do not fit though all calls agree",
        calls_agree,
        tuple(
            {"n_ranks": n, "n_calls": k, "warned": w, "sizes": s}
            for n, k, w, s in (
                (16, 247, (3, 11),
                 "NET/IB : collective mismatch error, local size 32768 remote size 1048576"),
                (4, 12, (0,), "Message truncated : received 524288 bytes instead of 65536"),
                (8, 60, (7,), "NET/IB : collective mismatch error, local size 16 remote size 64"),
            )
        ),
    ),
    FieldCase(
        20,
        "the same gathers in another order",
        another_order,
        tuple(
            {"n_ranks": n, "odd": o, "named": w, "n_steps": s, "sizes": z, "other_order": x,
             "run_ahead": a}
            for n, o, w, s, z, x, a in (
                (2, (1,), (0, 1), 0, (8_000_000, 1_000, 4_000_000), (1, 0, 2), 8),
                (2, (0,), (0,), 6, (64, 1_000, 300, 5), (0, 2, 1, 3), 8),
                (8, (2, 6), (2, 6), 3, (64, 1_000, 300), (2, 0, 1), 6),
            )
        ),
    ),
    FieldCase(
        21,
        "a dimension that is longer by one",
        shape_of_dumps_or_logs,
        (
            *(
                {"n_ranks": n, "culprit": c, "shape": s, "dim": d, "by": b, "is_json": j}
                for n, c, s, d, b, j in (
                    (4, 2, (359, 1, 1435, 16), 2, 1, False), (8, 0, (40, 7), 0, 1, True),
                )
            ),
            {"n_ranks": 4, "culprit": 2, "shape": "359, 1, 1435, 16",
             "other": "359, 1, 1436, 16", "op": "ALLGATHER"},
            {"n_ranks": 8, "culprit": 7, "shape": "41, 3", "other": "40, 3", "op": "ALLREDUCE"},
        ),
    ),
    FieldCase(
        22,
        "bytes of another collective on a CPU group",
        cpu_sizes,
        tuple(
            {"received": r, "expected": e, "rank": k, "cause": c}
            for r, e, k, c in (
                (194_478_720, 4, 0, Cause.OP_TYPE_MISMATCH),
                (8, 16_777_216, 3, Cause.OP_TYPE_MISMATCH),
                (4_096, 2_048, 1, Cause.SHAPE_MISMATCH),
            )
        ),
    ),
)  # fmt: skip
