"""The calls of one training step by layout, rank by rank, and how a rank may deviate from them.

Nothing of torch is needed here: what a case plants is drawn from the same lists that the job plays.

========= ================================================================================
layout    groups, and the calls of a step
========= ================================================================================
dp        all ranks twice (dp, metrics): three gradient buckets, a broadcast, a metric, the norm
dp_async  the same; nothing is waited for before the step's end
fsdp      all ranks (dp): two all-gathers, two reduce-scatters, the norm
tp_dp     pairs (tp), their places (dp): four sums on tp, a gradient, the norm
pp_dp     chains (pp), their places (dp): two microbatches there and back, a gradient, the norm
========= ================================================================================

The norm is an all-reduce of one element on the default group (``world``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WORLD = "world"
LAYOUTS = ("dp", "dp_async", "fsdp", "tp_dp", "pp_dp")
DEVIATIONS = ("skip", "extra", "twice", "swap", "resize", "retype", "reroot")
MICROBATCHES = 2
P2P = frozenset({"send", "recv"})
EXTRA_NUMEL = 3
RESIZED_BY = 2  # elements: the size no longer fits, whatever it was
OTHER_DTYPE = "float64"

Groups = dict[str, list[list[int]]]


@dataclass(frozen=True, slots=True)
class Call:
    """One op of a step; ``peer`` is the root or the partner, as a rank of the group."""

    op: str
    group: str
    numel: int
    peer: int = 0
    dtype: str = "float32"


def chain_length(world_size: int) -> int:
    """Stages of the pipeline."""
    return 4 if world_size == 8 else 2


def groups_of(layout: str, world_size: int) -> Groups:
    """The member lists of every kind of group; each rank is in one list of each."""
    everyone = list(range(world_size))
    if layout in {"tp_dp", "pp_dp"}:
        name, n = ("tp", 2) if layout == "tp_dp" else ("pp", chain_length(world_size))
        inner = [everyone[first : first + n] for first in range(0, world_size, n)]
        return {WORLD: [everyone], name: inner, "dp": [everyone[place::n] for place in range(n)]}
    return {WORLD: [everyone], "dp": [everyone], "metrics": [everyone]}


def members_of(layout: str, world_size: int, rank: int, group: str) -> list[int]:
    """The list of ``group`` that ``rank`` is in."""
    return next(one for one in groups_of(layout, world_size)[group] if rank in one)


def calls_of(layout: str, world_size: int, rank: int) -> list[Call]:
    """What ``rank`` calls in a step."""
    norm = Call("all_reduce", WORLD, 1)
    if layout == "tp_dp":
        sums = [Call("all_reduce", "tp", numel) for numel in (32, 48, 32, 48)]
        return [*sums, Call("all_reduce", "dp", 256), norm]
    if layout == "pp_dp":
        return [*_pipeline(world_size, rank), Call("all_reduce", "dp", 256), norm]
    if layout == "fsdp":
        gathers = [Call("all_gather", "dp", numel) for numel in (64, 96)]
        scatters = [Call("reduce_scatter", "dp", numel) for numel in (96, 64)]
        return [*gathers, *scatters, norm]
    buckets = [Call("all_reduce", "dp", numel) for numel in (256, 128, 64)]
    return [Call("broadcast", "dp", 16), *buckets, Call("all_reduce", "metrics", 2), norm]


def _pipeline(world_size: int, rank: int) -> list[Call]:
    """All microbatches forward, then all backward."""
    n_stages = chain_length(world_size)
    stage = rank % n_stages
    calls: list[Call] = []
    for source, target in ((stage - 1, stage + 1), (stage + 1, stage - 1)):
        for _ in range(MICROBATCHES):
            if 0 <= source < n_stages:
                calls.append(Call("recv", "pp", 40, source))
            if 0 <= target < n_stages:
                calls.append(Call("send", "pp", 40, target))
    return calls


def deviated(calls: list[Call], deviation: str, place: int, other: int = 0) -> list[Call]:
    """The calls with ``calls[place]`` left out (skip), after another one of its group (extra), made
    again (twice), exchanged with ``calls[other]`` (swap), or with another size, type or root."""
    found = list(calls)
    one = calls[place]
    match deviation:
        case "skip":
            del found[place]
        case "extra":
            found.insert(place, Call("all_reduce", one.group, EXTRA_NUMEL))
        case "twice":
            found.insert(place, one)
        case "swap":
            found[place], found[other] = found[other], found[place]
        case "resize":
            found[place] = replace(one, numel=one.numel + RESIZED_BY)
        case "retype":
            found[place] = replace(one, dtype=OTHER_DTYPE, numel=one.numel)
        case "reroot":
            found[place] = replace(one, peer=one.peer + 1)
    return found
