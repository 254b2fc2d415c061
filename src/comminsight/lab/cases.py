"""What the lab plants: one case per kind and seed, with the verdicts that are right for it.

``draw_case("late_rank", 17)`` is the same case every time: rank, step, layout and number of ranks
come from the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from comminsight.lab.step_calls import (
    LAYOUTS,
    P2P,
    Call,
    calls_of,
    members_of,
)
from comminsight.model.verdict import Cause

N_STEPS = 8
LATE_STEPS = 26
LATE_MS = 60
LONG_S = 5.0  # of a legitimate pause: longer than the overdue limit of the score
JOBS = ("ddp", "fsdp2", "hsdp", "tp_pp_dp")
SIZES = {"hsdp": (4, 6, 8), "tp_pp_dp": (4, 8), "tp_dp": (4, 6, 8), "pp_dp": (4, 6, 8)}
MIN_MAJORITY = 3  # members of a group in which one that is unlike the others can be told

ABSENT = frozenset({Cause.RANK_NOT_ENTERED})
GONE_ON = frozenset({Cause.CONTROL_FLOW_SKIP, Cause.RANK_NOT_ENTERED, Cause.ORDER_INVERSION})
MORE = frozenset({Cause.EXTRA_COLLECTIVE})
UNLIKE = frozenset(
    {Cause.OP_TYPE_MISMATCH, Cause.SHAPE_MISMATCH, Cause.DTYPE_MISMATCH, Cause.ORDER_INVERSION}
)
DEAD = frozenset({Cause.RANK_DEAD})
LEFT = frozenset({Cause.CONTROL_FLOW_SKIP, Cause.P2P_UNMATCHED})  # in order, and is missed
UNMATCHED = frozenset({Cause.P2P_UNMATCHED, Cause.P2P_CYCLE})
CYCLE = frozenset({Cause.CROSS_GROUP_CYCLE, Cause.ORDER_INVERSION})


@dataclass(frozen=True, slots=True)
class Accepted:
    """A right answer: one of ``causes``, that names all of ``must`` and nobody beyond ``may``."""

    causes: frozenset[Cause]
    must: frozenset[int]
    may: frozenset[int] = frozenset()

    def has(self, cause: Cause, culprits: frozenset[int]) -> bool:
        """Whether a verdict is this answer."""
        return cause in self.causes and self.must <= culprits <= self.must | self.may


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the lab. Nothing ``accepted``: nobody may be named. ``is_timed``: its verdict
    rests on milliseconds, so that it runs alone. ``leaves_dumps``: the job is stuck until it is
    stopped, and Flight Recorder dumps are taken then."""

    kind: str
    seed: int
    ranks: int
    arguments: tuple[str, ...]
    accepted: tuple[Accepted, ...] = ()
    planted: tuple[int, ...] = ()
    is_stopped: bool = True
    is_timed: bool = False
    leaves_dumps: bool = False
    kill_s: float = 0.0
    dump_s: float = 0.0

    @property
    def name(self) -> str:
        """Name of its run."""
        return f"{self.kind}-{self.seed}"

    @property
    def is_untouched(self) -> bool:
        """True when the job itself does nothing unusual."""
        return self.kind in {"healthy", "job_killed"}

    @property
    def is_silent(self) -> bool:
        """True when every accusation is wrong."""
        return not self.accepted


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of one case, and the choices that many kinds share."""

    kind: str
    seed: int
    dice: random.Random

    def job(
        self, names: tuple[str, ...] = JOBS + LAYOUTS, *, steps: int = N_STEPS, compute_ms: int = 5
    ) -> tuple[int, tuple[str, ...]]:
        """(ranks, arguments) of a job of any layout: torch's own wrappers, or calls op by op."""
        name = self.dice.choice(names)
        ranks = self.dice.choice(SIZES.get(name, (4, 5, 6, 7, 8)))
        chosen = ("--job", name) if name in JOBS else ("--job", "calls", "--layout", name)
        more = ("--steps", steps, "--compute-ms", compute_ms, "--seed", self.seed)
        return ranks, (*chosen, *map(str, more))

    def step(self) -> int:
        """A step that is neither the first nor the last."""
        return self.dice.randrange(2, N_STEPS - 1)

    def case(
        self,
        ranks: int,
        arguments: tuple[str, ...],
        planted: tuple[int, ...],
        *accepted: Accepted,
        leaves_dumps: bool = False,
    ) -> Case:
        """The case, planted where it is."""
        return Case(
            self.kind, self.seed, ranks, arguments, accepted, planted, leaves_dumps=leaves_dumps
        )

    def at_step(self, *causes: frozenset[Cause], **planted: object) -> Case:
        """One rank deviates at the begin of a step; ``planted`` are the options beside its rank,
        whose name ends in ``_rank``."""
        ranks, arguments = self.job()
        rank = self.dice.randrange(ranks)
        words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in planted.items()]
        flat = [part.replace("RANK", str(rank)) for pair in words for part in pair]
        accepted = (Accepted(one, frozenset({rank})) for one in causes)
        return self.case(ranks, (*arguments, *flat), (rank,), *accepted)


def only(rank: int, *causes: frozenset[Cause]) -> Accepted:
    """That rank and nobody else."""
    return Accepted(frozenset().union(*causes), frozenset({rank}))


def stays_away(draw: Draw) -> Case:
    """A rank does not come back from its data loader."""
    case = draw.at_step(ABSENT, stop_rank="RANK", stop_at=draw.step())
    return replace(case, leaves_dumps=True)


def dies(*hows: str, causes: tuple[frozenset[Cause], ...] = (DEAD,)) -> Callable[[Draw], Case]:
    """A rank ends in one of these ways."""

    def drawn(draw: Draw) -> Case:
        how = draw.dice.choice(hows)
        return draw.at_step(*causes, exit_rank="RANK", exit_at=draw.step(), exit_how=how)

    return drawn


def struck(how: str, causes: tuple[frozenset[Cause], ...]) -> Callable[[Draw], Case]:
    """A signal strikes a rank, wherever it is in its step."""

    def drawn(draw: Draw) -> Case:
        delay = draw.dice.choice((0, 1, 3, 9))
        case = draw.at_step(
            *causes, exit_rank="RANK", exit_at=draw.step(), exit_how=how, exit_after_ms=delay
        )
        return replace(case, leaves_dumps=how == "sigstop")

    return drawn


def is_late(draw: Draw) -> Case:
    """One rank computes longer from some step on."""
    ranks, arguments = draw.job(JOBS, steps=LATE_STEPS)
    rank = draw.dice.randrange(ranks)
    first = draw.dice.randrange(6, 12)
    late = ("--late-rank", rank, "--late-from", first, "--late-ms", LATE_MS)
    right = only(rank, frozenset({Cause.COMPUTE_STRAGGLER}))
    case = draw.case(ranks, (*arguments, *map(str, late)), (rank,), right)
    return replace(case, is_timed=True, is_stopped=False)


def wanders(draw: Draw) -> Case:
    """Another rank is late in every step: nobody is to blame, or all are of an uneven load."""
    ranks, arguments = draw.job(JOBS, steps=LATE_STEPS)
    uneven = Accepted(frozenset({Cause.LOAD_IMBALANCE}), frozenset(), frozenset(range(ranks)))
    silent = Accepted(frozenset({Cause.NO_VERDICT, Cause.HOST_PAUSE}), frozenset())
    case = draw.case(ranks, (*arguments, "--wander-ms", str(LATE_MS)), (), uneven, silent)
    return replace(case, is_timed=True, is_stopped=False)


def pauses(draw: Draw) -> Case:
    """A rank evaluates, or writes a checkpoint, for longer than the limit; then all goes on."""
    step = draw.step()
    case = draw.at_step(stop_rank="RANK", stop_at=step, stop_seconds=LONG_S)
    return replace(case, is_stopped=False)


def is_well(draw: Draw) -> Case:
    """Nothing is planted; some jobs evaluate and save now and then."""
    ranks, arguments = draw.job(steps=draw.dice.choice((6, 12, 24)))
    more = draw.dice.choice(((), ("--eval-every", "4"), ("--checkpoint-every", "5")))
    real = more if "calls" not in arguments else ()
    case = draw.case(ranks, (*arguments, *real), ())
    return replace(case, is_stopped=draw.dice.random() < 0.5, dump_s=draw.dice.uniform(1.0, 2.0))


def is_killed(draw: Draw) -> Case:
    """A healthy job is ended from outside in the middle of its work."""
    ranks, arguments = draw.job(steps=10_000)
    case = draw.case(ranks, arguments, ())
    return replace(case, kill_s=draw.dice.uniform(2.0, 4.0))


def deviates(deviation: str, *causes: frozenset[Cause], op: str = "") -> Callable[[Draw], Case]:
    """One rank calls something else than its peers in a group of at least three."""

    def drawn(draw: Draw) -> Case:
        layout, ranks, rank, places = draw_places(draw, op)
        place = draw.dice.choice(places)
        return draw.case(
            ranks, deviation_words(draw, layout, deviation, (rank,), place), (rank,),
            only(rank, *causes), leaves_dumps=True,
        )  # fmt: skip

    return drawn


def draw_places(draw: Draw, op: str = "") -> tuple[str, int, int, list[int]]:
    """(layout, ranks, rank, numbers of its collectives in groups of at least three)."""
    layouts = {"broadcast": ("dp", "dp_async")}.get(
        op, ("dp", "dp_async", "fsdp", "tp_dp", "pp_dp")
    )
    layout = draw.dice.choice(layouts)
    ranks = draw.dice.choice((4, 6, 8) if layout in {"tp_dp", "pp_dp"} else (4, 5, 6, 7, 8))
    rank = draw.dice.randrange(ranks)
    found = [
        number
        for number, call in enumerate(calls_of(layout, ranks, rank))
        if call.op not in P2P
        and call.op == (op or call.op)
        and len(members_of(layout, ranks, rank, call.group)) >= MIN_MAJORITY
    ]
    return layout, ranks, rank, found


def deviation_words(
    draw: Draw, layout: str, how: str, ranks: tuple[int, ...], place: int, other: int = 0
) -> tuple[str, ...]:
    """The options that plant it."""
    words = (
        "--job", "calls", "--layout", layout, "--steps", N_STEPS, "--compute-ms", 3,
        "--seed", draw.seed, "--deviation", how, "--deviation-at", draw.step(),
        "--deviation-ranks", ",".join(map(str, ranks)), "--deviation-place", place,
        "--deviation-other", other,
    )  # fmt: skip
    return tuple(map(str, words))


def swaps_ops(draw: Draw) -> Case:
    """One rank exchanges two unlike ops of one group."""
    layout = draw.dice.choice(("dp", "dp_async", "fsdp"))
    ranks = draw.dice.choice((4, 5, 6, 7, 8))
    rank = draw.dice.randrange(ranks)
    calls = calls_of(layout, ranks, rank)
    pairs = [
        (a, b)
        for a, b in pairwise(range(len(calls)))
        if calls[a].group == calls[b].group and calls[a] != calls[b]
    ]
    place, other = draw.dice.choice(pairs)
    words = deviation_words(draw, layout, "swap", (rank,), place, other)
    return draw.case(ranks, words, (rank,), only(rank, UNLIKE), leaves_dumps=True)


def swaps_groups(draw: Draw) -> Case:
    """One rank calls two groups of the same members in another order than all others."""
    ranks = draw.dice.choice((4, 5, 6, 7, 8))
    rank = draw.dice.randrange(ranks)
    words = deviation_words(
        draw, "dp", "swap", (rank,), *unlike_groups(calls_of("dp", ranks, rank), draw)
    )
    circle = Accepted(CYCLE, frozenset({rank}), frozenset(range(ranks)))
    return draw.case(ranks, words, (rank,), only(rank, GONE_ON), circle, leaves_dumps=True)


def unlike_groups(calls: list[Call], draw: Draw) -> tuple[int, int]:
    """Neighbouring calls of two groups."""
    found = [(a, b) for a, b in pairwise(range(len(calls))) if calls[a].group != calls[b].group]
    return draw.dice.choice(found)


def deadlocks(draw: Draw) -> Case:
    """Half of the ranks call two groups in one order, half in the other: neither is wrong, unless
    one half did as the other before."""
    ranks = draw.dice.choice((4, 6, 8))
    turned = tuple(sorted(draw.dice.sample(range(ranks), ranks // 2)))
    places = unlike_groups(calls_of("dp", ranks, 0), draw)
    words = deviation_words(draw, "dp", "swap", turned, *places)
    circle = Accepted(CYCLE, frozenset(), frozenset(range(ranks)))
    step = draw.dice.choice((0, draw.step()))
    changed = (Accepted(GONE_ON, frozenset(), frozenset(turned)),) if step else ()
    words = (*words, "--deviation-at", str(step))
    return draw.case(ranks, words, turned, circle, *changed, leaves_dumps=True)


def loses_message(draw: Draw) -> Case:
    """A stage leaves out a send, or waits for one receive too many."""
    ranks = draw.dice.choice((4, 6, 8))
    rank = draw.dice.randrange(ranks)
    deviation, op = draw.dice.choice((("skip", "send"), ("twice", "recv")))
    calls = calls_of("pp_dp", ranks, rank)
    places = [n for n, call in enumerate(calls) if call.op == op]
    place = draw.dice.choice(places)
    peer = members_of("pp_dp", ranks, rank, "pp")[calls[place].peer]
    words = deviation_words(draw, "pp_dp", deviation, (rank,), place)
    both = Accepted(UNMATCHED, frozenset({rank}), frozenset({peer}))
    return draw.case(ranks, words, (rank,), both, only(rank, GONE_ON), leaves_dumps=True)


Drawn = Callable[[Draw], Case]

FAULTS: dict[str, Drawn] = {
    "late_rank": is_late,
    "random_late_rank": wanders,
    "data_loader": stays_away,
    "missing_collective": deviates("skip", GONE_ON, UNLIKE),
    "extra_collective": deviates("extra", UNLIKE, MORE),
    "call_made_twice": deviates("twice", UNLIKE, GONE_ON, MORE),
    "order_of_ops": swaps_ops,
    "order_of_groups": swaps_groups,
    "group_deadlock": deadlocks,
    "shape_mismatch": deviates("resize", frozenset({Cause.SHAPE_MISMATCH})),
    "dtype_mismatch": deviates("retype", frozenset({Cause.DTYPE_MISMATCH})),
    "root_mismatch": deviates("reroot", frozenset({Cause.ROOT_MISMATCH}), op="broadcast"),
    "exit_0": dies("clean", "os_exit_clean", causes=(DEAD, LEFT)),
    "exception": dies("exception", "sys_exit", "os_exit"),
    "sigkill": struck("sigkill", (DEAD,)),
    "sigstop": struck("sigstop", (ABSENT, frozenset({Cause.ALL_PRESENT_STUCK}))),
    "p2p_unmatched": loses_message,
}
SILENT: dict[str, Drawn] = {
    "long_pause": pauses,
    "job_killed": is_killed,
    "healthy": is_well,
}
KINDS = FAULTS | SILENT


def draw_case(kind: str, seed: int) -> Case:
    """The case of this kind and seed."""
    return KINDS[kind](Draw(kind, seed, random.Random(f"{kind} {seed}")))
