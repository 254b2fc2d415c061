"""Work that ends by itself is told from ranks that are stuck, by evidence alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.long_work import as_long_work
from comminsight.model.hang import HangEvent, Stack, StackSource
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import ClockKind, LogCode, LogEvent, LogTime
from comminsight.model.verdict import Cause, Confidence
from tests.unit.diagnosis.events import AR, NOW, S, came, comm, event, op

WORLD = (comm(0, range(4)),)
BEGAN = NOW - 40 * S


def waiting(*absent: int) -> HangEvent:
    inside = [op(rank, 0, AR, 8) for rank in range(4) if rank not in absent]
    return event(4, inside, [came(rank, 0, 7) for rank in absent])


def with_stack(told: HangEvent, rank: int, *frames: str) -> HangEvent:
    stack = Stack(global_rank=rank, pid=1, source=StackSource.PY_SPY, text="\n".join(frames))
    return replace(told, stacks=(*told.stacks, stack))


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (("    write (io.py:1)", "    save_checkpoint (run.py:40)"), Cause.LONG_LEGIT_OP),
        (("    forward (m.py:1)", "    evaluate (run.py:40)"), Cause.LONG_LEGIT_OP),
        (("    poll (queue.py:1)", "    __next__ (loader.py:40)"), Cause.RANK_NOT_ENTERED),
        (
            ("    checkpoint (torch/utils/checkpoint.py:1)", "    f (m.py:3)"),
            Cause.RANK_NOT_ENTERED,
        ),
        ((), Cause.RANK_NOT_ENTERED),
    ],
)
def test_a_stack_tells_the_work(frames: tuple[str, ...], cause: Cause) -> None:
    verdict = judge_hang(with_stack(waiting(2), 2, *frames), WORLD)
    assert (verdict.cause, verdict.culprits) == (cause, (2,))
    assert (verdict.confidence is Confidence.LOW) == (cause is Cause.LONG_LEGIT_OP)


def test_the_stack_of_one_of_two_absent_ranks_says_nothing_of_the_other() -> None:
    told = with_stack(waiting(2, 3), 2, "    save_checkpoint (run.py:40)")
    verdict = judge_hang(told, WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2, 3))


def log(rank: int, *lines: tuple[float, str], error_s: float = 0) -> JobLog:
    """Lines about work, so many seconds after the others began to wait."""
    events = tuple(
        LogEvent(
            code=LogCode.LONG_WORK, file="a.log", line=n, text=kind, values={"kind": kind},
            time=LogTime(ClockKind.ZONED, BEGAN + round(at_s * S), round(error_s * S)),
        )
        for n, (at_s, kind) in enumerate(lines)
    )  # fmt: skip
    return JobLog(file="a.log", events=events, rank=rank)


@pytest.mark.parametrize(
    ("lines", "error_s", "cause"),
    [
        (((-5, "Saving"), (10, "Saving"), (35, "Saving")), 0, Cause.LONG_LEGIT_OP),
        (((35, "Compiling"),), 0, Cause.LONG_LEGIT_OP),
        # begun before, and nothing since
        (((-30, "Saving"), (-5, "Saving")), 0, Cause.RANK_NOT_ENTERED),
        # a line right after the others came, then silence
        (((2, "Saving"),), 0, Cause.RANK_NOT_ENTERED),
        # the last line says that it is done
        (((10, "Saving"), (35, "Saved")), 0, Cause.RANK_NOT_ENTERED),
        # a clock of another zone
        (((35, "Saving"),), 14 * 3600, Cause.RANK_NOT_ENTERED),
    ],
)
def test_lines_that_go_on_while_the_others_wait(
    lines: tuple[tuple[float, str], ...], error_s: float, cause: Cause
) -> None:
    told = waiting(1)
    plain = judge_hang(told, WORLD)
    verdict = as_long_work(plain, told, [log(1, *lines, error_s=error_s)])
    assert (verdict.cause, verdict.culprits) == (cause, (1,))
    assert as_long_work(plain, told, [log(3, *lines)]) == plain
