"""Kinds of iterations from the sizes of two ops: many engines, nothing of them told wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest

from comminsight.model.ops import Op
from comminsight.model.step import PhaseKind, StepEvidence, StepSummary
from comminsight.semantics.phase_iterations import (
    Iteration,
    IterationKinds,
    IterationSnapshot,
    learnt,
)

HIDDEN, LOGITS = 8192, 65_536  # bytes of a token
TRUE = {"p": "prefill", "d": "decode"}  # else mixed, or of a kind that nothing tells
Engine = Callable[[random.Random], Iterator[tuple[str, int, int, int]]]


def evidence(op: Op, size_bytes: int, role: str = "TP") -> StepEvidence:
    return StepEvidence(
        comm_hash=1, comm_index=1, role=role, op=op, op_seq=0, match_seq=0, func_seq=0,
        size_bytes=size_bytes, start_ns=0, seq=0,
    )  # fmt: skip


def step(tokens: int, rows: int, n_ops: int = 10, role: str = "TP") -> StepSummary:
    return StepSummary(
        session_id="s", global_rank=0, step=0, template="serving-tp", template_version=1,
        template_file_version=1, n_ops=n_ops,
        first=evidence(Op.ALL_REDUCE, tokens * HIDDEN, role),
        last=evidence(Op.ALL_GATHER, rows * LOGITS, role),
    )  # fmt: skip


def requests(draw: random.Random, *, load: float) -> Iterator[list[int]]:
    """Prompts that come before each iteration."""
    while True:
        n = 0
        while draw.random() < load:
            n += 1
        yield [max(2, round(draw.lognormvariate(5.5, 1.2))) for _ in range(n)]


def separate(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """Prompts first, one or all of those waiting; at most 64 sequences."""
    running: list[int] = []
    waiting: list[int] = []
    at_once = draw.choice([1, 4])
    for new in requests(draw, load=draw.choice([0.05, 0.15, 0.3])):
        waiting += new
        taken = waiting[: min(at_once, 64 - len(running))]
        if taken:
            waiting = waiting[len(taken) :]
            running += [draw.randint(2, 200) for _ in taken]
            yield "p", sum(taken), len(taken), 10
        elif running:
            yield "d", len(running), len(running), 10
            running = [left - 1 for left in running if left > 1]


def chunked(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """Decodes, and what a budget leaves of one prompt: with a row for each chunk."""
    running: list[int] = []
    waiting: list[int] = []
    budget, most = draw.choice([128, 512, 2048]), draw.choice([4, 16, 64])
    for new in requests(draw, load=draw.choice([0.05, 0.2, 0.5])):
        waiting += new
        chunk = min(waiting[0], budget - len(running)) if waiting and len(running) < most else 0
        tokens, rows = len(running) + chunk, len(running) + bool(chunk)
        kind = "d" if chunk <= 1 else "m" if running else "p"
        running = [left - 1 for left in running if left > 1]
        if chunk:
            waiting[0] -= chunk
            if not waiting[0]:
                waiting.pop(0)
                running.append(draw.randint(2, 60))
        if rows:
            yield kind, tokens, rows, 10


def saturated(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """As many sequences all the time, each that ends replaced; the budget is filled or not."""
    n, budget = draw.choice([4, 16, 64]), draw.choice([256, 512, 0])
    while True:
        if draw.random() < 0.2:
            yield "m", budget or n - 1 + draw.randint(8, 900), n, 10
        else:
            yield "d", n, n, 10


def prompts_only(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """The prompts of a disaggregated job, of any length or of one of two."""
    lengths = draw.choice([range(16, 4000), (128, 2048), (32, 1024), (64,)])
    while True:
        n = draw.randint(1, 4)
        yield "p", sum(draw.choice(lengths) for _ in range(n)), n, 10


def with_all_logits(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """Some requests ask for the logits of their whole prompt."""
    for kind, tokens, rows, n_ops in separate(draw):
        is_asked = kind == "p" and tokens > 64 and draw.random() < 0.2
        yield (kind, tokens, tokens if is_asked else rows, n_ops)


def captured(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """Decodes are padded to the next size that a graph was captured for."""
    for kind, tokens, rows, n_ops in separate(draw):
        padded = 1 << (tokens - 1).bit_length() if kind == "d" else tokens
        yield kind, padded, rows, n_ops


def padded_to_others(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """Decodes are padded to the largest batch of replicas that keep in step."""
    other = 20
    for kind, tokens, rows, n_ops in separate(draw):
        other = max(1, min(60, other + draw.randint(-2, 2)))
        yield kind, max(tokens, other) if kind == "d" else tokens, rows, n_ops


def with_draft(draw: random.Random) -> Iterator[tuple[str, int, int, int]]:
    """A smaller tensor parallel model runs ahead: its iterations are steps of their own."""
    n_ahead = draw.choice([1, 3, 5])
    for kind, tokens, rows, _ in separate(draw):
        if kind == "d" and draw.random() < 0.9:
            for _ in range(n_ahead):
                yield "d", tokens, 8 * rows, 4
            yield "d", tokens * (n_ahead + 1), rows * (n_ahead + 1) * 8, 10
        else:
            yield kind, tokens, rows * 8, 4
            yield kind, tokens * 8, rows * 8, 10


ENGINES: tuple[Engine, ...] = (
    separate, chunked, saturated, prompts_only, with_all_logits, captured, padded_to_others,
    with_draft,
)  # fmt: skip
TOLD: dict[Engine, float] = {
    separate: 0.5,
    chunked: 0.02,
    captured: 0.1,
}  # least share that is told, over all seeds


def iterations(engine: Engine, seed: int, n: int) -> list[tuple[str, StepSummary]]:
    own = zip(range(n), engine(random.Random(seed)), strict=False)
    return [(kind, step(tokens, rows, n_ops)) for _, (kind, tokens, rows, n_ops) in own]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_no_iteration_is_told_wrong(engine: Engine) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(20):
        kinds = IterationKinds()
        for kind, one in iterations(engine, seed, 400):
            told = kinds.kind_of(one)
            found[kind, told.value if told else "-"] += 1
    print(engine.__name__, dict(sorted(found.items())))
    wrong = {pair: n for pair, n in found.items() if pair[1] not in {"-", TRUE.get(pair[0], "-")}}
    assert wrong == {}
    n_told = sum(n for (_, told), n in found.items() if told != "-")
    assert n_told >= TOLD.get(engine, 0) * found.total()


def taught() -> tuple[IterationKinds, StepSummary]:
    """Kinds that tell decodes, and the decode they have just told."""
    kinds = IterationKinds()
    for kind, one in iterations(separate, 3, 200)[40:]:
        if kinds.kind_of(one) is PhaseKind.DECODE and kind == "d":
            return kinds, one
    raise AssertionError("no decode was told")


def test_nothing_is_told_before_it_is_learnt_and_of_other_ops() -> None:
    kinds, decode = taught()
    tokens, rows = decode.first.size_bytes // HIDDEN, decode.last.size_bytes // LOGITS
    for other in (
        step(tokens, rows, role="DP"), step(0, rows), step(tokens, 0), step(tokens, rows, n_ops=11)
    ):  # fmt: skip
        assert kinds.kind_of(other) is None
    new = IterationKinds()
    assert {new.kind_of(one) for _, one in iterations(separate, 3, 16)} == {None}


def test_more_sequences_than_there_can_be_end_it() -> None:
    kinds, decode = taught()
    assert kinds.kind_of(decode) is PhaseKind.DECODE
    assert kinds.kind_of(step(900, 900)) is None
    assert kinds.kind_of(decode) is None


def test_after_lost_records_any_number_may_be_running() -> None:
    kinds, _ = taught()
    kinds.skip()
    assert [kinds.kind_of(step(n, n)) for n in (900, 899)] == [PhaseKind.DECODE] * 2


def test_the_last_token_of_a_prompt_alone_is_no_end_of_all_others() -> None:
    kinds, _ = taught()
    kinds.skip()
    told = [kinds.kind_of(step(n, n)) for n in (30, 1, 31, 31, 2, 2)]
    assert [one is not None for one in told] == [True, False, True, True, False, True]


def test_the_state_is_carried_over() -> None:
    kinds, carried = IterationKinds(), IterationKinds()
    whole, parts = [], []
    for _, one in iterations(separate, 3, 200):
        whole.append(kinds.kind_of(one))
        data = msgspec.json.encode(carried.snapshot())
        carried = IterationKinds()
        carried.restore(msgspec.json.decode(data, type=IterationSnapshot))
        parts.append(carried.kind_of(one))
    assert parts == whole
    assert len(set(whole)) == 3


@pytest.mark.parametrize(
    ("samples", "row_bytes"),
    [
        ([(4, 4), (6, 6), (10, 10), (40, 4), (60, 4), (80, 4)], 0),  # one row was not seen
        ([(1, 1), (2, 2), (3, 3), (40, 1), (61, 1), (80, 1)], 1),
        ([(2, 2), (4, 4), (6, 6), (41, 2), (60, 2), (80, 2)], 0),  # half a row
        ([(1, 1), (2, 2), (3, 3), (40, 1), (40, 1), (40, 1)], 0),  # a budget is filled
    ],
)
def test_what_one_row_is(samples: list[tuple[int, int]], row_bytes: int) -> None:
    rule = learnt([Iteration(*sizes, 10) for sizes in samples * 4])
    assert rule is not None
    assert rule.row_bytes == row_bytes


def test_ratios_that_no_model_has_are_not_learnt() -> None:
    samples = [Iteration(*sizes, 10) for sizes in [(1, 1), (2, 2), (90, 1), (70, 1)] * 8]
    assert learnt(samples) is not None
    assert learnt([own._replace(in_bytes=own.in_bytes * 5) for own in samples]) is None
