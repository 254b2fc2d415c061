"""What evidence of other kinds makes of a verdict on a hang, and what leaves it alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.refinements import REFINEMENTS
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.counters import CounterSeries
from comminsight.model.hang import HangEvent, InFlightOp, Stack, StackSource
from comminsight.model.job_evidence import CallFrames, JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.ops import Backend
from comminsight.model.topology import CommRole
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.unit.diagnosis.events import AR, RECV, SEND, came, comm, event, op

WORLD = (comm(0, range(4)),)
ALL_IN = event(4, [op(rank, 0, AR, 1) for rank in range(4)])
ABSENT = event(4, [op(rank, 0, AR, 1) for rank in (0, 2)], [came(1, 0, 0), came(3, 0, 0)])


def refined(job: JobEvidence) -> Verdict:
    assert job.hang is not None
    verdict = judge_hang(job.hang, job.communicators)
    for refine in REFINEMENTS:
        verdict = refine(verdict, job)
    return verdict


def of(hang: HangEvent, **more: object) -> JobEvidence:
    return replace(JobEvidence(hang=hang, communicators=WORLD, world_size=4), **more)


def said(verdict: Verdict) -> set[str]:
    evidence = {one.message.code for one in verdict.evidence}
    return evidence | {one.code for one in (*verdict.missing, *verdict.next_actions)}


def environment(name: str, value: str, code: LogCode = LogCode.ENVIRONMENT) -> tuple[JobLog, ...]:
    line = LogEvent(code=code, file="env", line=3, text=f"{name}={value}",
                    values={"name": name, "value": value})  # fmt: skip
    return (JobLog(file="env", events=(line,)),)


@pytest.mark.parametrize(
    ("hang", "name", "value", "is_told"),
    [
        (ALL_IN, "CUDA_LAUNCH_BLOCKING", "1", True),
        (ALL_IN, "CUDA_LAUNCH_BLOCKING", "0", False),
        (ALL_IN, "NCCL_DEBUG", "1", False),
        (ABSENT, "CUDA_LAUNCH_BLOCKING", "1", False),
    ],
)
def test_launches_that_block_are_a_reason_only_where_nobody_is_absent(
    hang: HangEvent, name: str, value: str, is_told: bool
) -> None:
    verdict = refined(of(hang, logs=environment(name, value)))
    assert (codes.BLOCKING_LAUNCH in said(verdict)) is is_told
    assert (codes.UNSET_VARIABLE in said(verdict)) is is_told


def stack(text: str) -> tuple[Stack, ...]:
    return (Stack(global_rank=1, pid=9, source=StackSource.PY_SPY, text=text),)


@pytest.mark.parametrize(
    ("frame", "is_loader"),
    [
        ("cuModuleLoadDataEx (libcuda.so.1)", True),
        ("cuLibraryGetKernel (libcuda.so.1)", True),
        ("_dl_open_worker (ld-linux.so)", True),
        ("load_state_dict (checkpoint.py:12)", False),
        ("cudaStreamSynchronize (libcudart.so)", False),
    ],
)
def test_frames_that_load_code(frame: str, is_loader: bool) -> None:
    hang = replace(ALL_IN, stacks=stack(f"main (a.py:1)\n  {frame}"))
    told = said(refined(of(hang)))
    assert (codes.LOADER in told) is is_loader
    assert (codes.MISSING_NATIVE_STACK in told) is not is_loader


def test_only_the_first_op_of_a_group_may_load_code() -> None:
    later = event(4, [op(rank, 0, AR, 9) for rank in range(4)])
    assert codes.FIRST_USE not in said(refined(of(later)))
    assert codes.FIRST_USE not in said(refined(of(ABSENT)))


def kernels(*ranks: int, is_library: bool = False, end_ns: int = 0) -> tuple[Activity, ...]:
    return tuple(
        Activity(
            global_rank=rank, kind=ActivityKind.COMMUNICATION, name="dispatch", start_ns=1,
            end_ns=end_ns, is_library=is_library,
        )
        for rank in ranks
    )  # fmt: skip


@pytest.mark.parametrize(
    ("activities", "cause"),
    [
        (kernels(1, 3), Cause.ORDER_INVERSION),
        (kernels(1), Cause.RANK_NOT_ENTERED),  # not on all that are missing
        (kernels(0, 1, 2, 3), Cause.RANK_NOT_ENTERED),  # on those that wait too
        (kernels(1, 3, is_library=True), Cause.RANK_NOT_ENTERED),
        (kernels(1, 3, end_ns=5), Cause.RANK_NOT_ENTERED),  # it is over
        ((), Cause.RANK_NOT_ENTERED),
    ],
)
def test_a_kernel_outside_the_library(activities: tuple[Activity, ...], cause: Cause) -> None:
    verdict = refined(of(ABSENT, activities=activities))
    assert (verdict.cause, verdict.culprits) == (cause, (1, 3))


CHAIN = (comm(0, (0, 1)), comm(1, (0, 1), CommRole.PP))
HALF_SENT = event(
    2, [op(0, 0, AR, 7), op(1, 1, RECV, 5, peer=0)],
    [came(0, 1, 4, peer=1, way=SEND), came(1, 0, 6), came(0, 0, 7, 6)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "frame", "cause"),
    [
        (0, "compile (torch/_dynamo/convert_frame.py:5)", Cause.CROSS_GROUP_CYCLE),
        (0, "step (train.py:5)", Cause.P2P_UNMATCHED),
        (1, "compile (torch/_dynamo/convert_frame.py:5)", Cause.P2P_UNMATCHED),  # not in the op
    ],
)
def test_a_collective_of_the_compiler_closes_a_circle(rank: int, frame: str, cause: Cause) -> None:
    frames = (CallFrames(global_rank=rank, frames=(frame,)),)
    job = JobEvidence(hang=HALF_SENT, communicators=CHAIN, frames=frames, world_size=2)
    assert (refined(job).cause, refined(job).culprits) == (cause, (0, 1))


def transfers(*pairs: tuple[int, int], n: int = 1) -> list[InFlightOp]:
    """Both halves of a message of each pair and direction."""
    return [
        half
        for k in range(1, n + 1)
        for one, other in pairs
        for source, target in ((one, other), (other, one))
        for half in (
            op(source, 0, SEND, k, peer=target), op(target, 0, RECV, k, peer=source),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "cause", "culprits"),
    [
        (((0, 1), (1, 2), (2, 3)), Cause.P2P_CYCLE, (0, 1, 2, 3)),
        (((0, 1), (2, 3)), Cause.P2P_CYCLE, (0, 1, 2, 3)),
        (((0, 1),), Cause.ALL_PRESENT_STUCK, ()),  # one link may be bad
        (((0, 1), (1, 2)), Cause.ALL_PRESENT_STUCK, ()),  # rank 1 may be bad
    ],
)
def test_pairs_apart(
    pairs: tuple[tuple[int, int], ...], cause: Cause, culprits: tuple[int, ...]
) -> None:
    verdict = refined(of(replace(event(4, transfers(*pairs)), tells_ends=True)))
    assert (verdict.cause, verdict.culprits) == (cause, culprits)
    if cause is Cause.P2P_CYCLE:
        assert verdict.confidence is Confidence.LOW


def test_pairs_are_no_circle_where_transfers_got_no_answer() -> None:
    hang = replace(event(4, transfers((0, 1), (2, 3))), tells_ends=True)
    line = LogEvent(
        code=LogCode.NCCL_IB_COMPLETION, file="a", line=1, text="", values={"status": 12}
    )
    verdict = refined(of(hang, logs=(JobLog(file="a", events=(line,)),)))
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())


def test_pairs_are_no_circle_where_somebody_is_in_a_collective() -> None:
    hang = event(4, [*transfers((0, 1), (2, 3)), op(1, 0, AR, 3), op(0, 0, AR, 3)])
    assert refined(of(replace(hang, tells_ends=True))).cause is not Cause.P2P_CYCLE


def messages(sent: list[int], taken: list[int], backend: Backend) -> JobEvidence:
    sends = [op(0, 0, SEND, n, peer=1, size_bytes=size) for n, size in enumerate(sent, 1)]
    receives = [op(1, 0, RECV, n, peer=0, size_bytes=size) for n, size in enumerate(taken, 1)]
    hang = replace(event(2, [*sends, *receives]), tells_ends=True)
    groups = (replace(comm(0, (0, 1)), backend=backend),)
    return JobEvidence(hang=hang, communicators=groups, world_size=2)


@pytest.mark.parametrize(
    ("sent", "taken", "backend", "cause", "is_ambiguous"),
    [
        ([3, 5], [5, 3], Backend.NCCL, Cause.P2P_UNMATCHED, False),
        ([3, 5], [3, 5], Backend.NCCL, Cause.ALL_PRESENT_STUCK, False),
        ([4, 4], [4, 4], Backend.NCCL, Cause.ALL_PRESENT_STUCK, True),
        ([3, 5], [5, 3], Backend.GLOO, Cause.ALL_PRESENT_STUCK, False),  # tags may say which
        ([3, 5], [5, 7], Backend.NCCL, Cause.ALL_PRESENT_STUCK, False),  # counted from elsewhere
    ],
)
def test_messages_in_another_order(
    sent: list[int], taken: list[int], backend: Backend, cause: Cause, is_ambiguous: bool
) -> None:
    verdict = refined(messages(sent, taken, backend))
    assert verdict.cause is cause
    assert (codes.AMBIGUOUS in said(verdict)) is is_ambiguous


@pytest.mark.parametrize(
    ("power_w", "busy_pct", "is_told"),
    [(71.0, 100.0, True), (640.0, 100.0, False), (71.0, 3.0, False), (0.0, 100.0, False)],
)
def test_busy_at_little_power(power_w: float, busy_pct: float, is_told: bool) -> None:
    counters = tuple(
        CounterSeries(host="a", device="gpu0", counter=name, unit=unit, times_ns=(1,), values=(v,))
        for name, unit, v in (("gpu_power", "W", power_w), ("gpu_util", "%", busy_pct))
    )
    verdict = refined(of(ABSENT, counters=counters))
    assert (codes.SPINNING in said(verdict)) is is_told
    assert verdict.culprits == (1, 3)
