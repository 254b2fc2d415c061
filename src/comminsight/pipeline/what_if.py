"""What-if of a run: which parts are tried, and what is known of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.measures import RunSources, run_sources
from comminsight.analysis.whatif import Gain, Part, WhatIf
from comminsight.analysis.whatif_barriers import with_barriers
from comminsight.analysis.whatif_steps import LabelledRun, LinkName, labelled_run
from comminsight.diagnosis.what_if import cannot_tell
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Coverage, Message
from comminsight.model.what_if import WHAT_IF_SCHEMA_VERSION, PartKind, WhatIfReport, WhatIfRow
from comminsight.semantics.parallel_layout import parallel_layout

MAX_ROWS = 1 << 22  # ops of all ranks and steps replayed: bounds the memory
MAX_STEPS = 64
BLOCK = 8  # adjacent steps, so that the time between two ends is known
MAX_PARTS = 16  # ranks, and links, that are tried: those with the most to lose
UNEVEN = "what_if.uneven"
IDLE = "what_if.idle"
BARRIERS = "what_if.barriers"
LEFT_OUT = "what_if.left_out"
SAMPLED = "what_if.sampled"
NO_STAGES = "what_if.no_stages"
COMMON = "what_if.common"


@dataclass(frozen=True, slots=True)
class _Tried:
    """A part with what to call it; ``has_peers`` is false where nobody else does the same."""

    part: Part
    kind: PartKind
    name: str = ""
    ranks: tuple[int, ...] = ()
    link: LinkName | None = None
    has_peers: bool = True


def what_if(
    trace: RunTrace, aligned: Sequence[AlignedStep], coverage: Coverage, *, run_id: str = ""
) -> WhatIfReport:
    """The gains of every node, stage and op class, and of the ranks and links with the most to
    lose, from the communication records of the run."""
    sources = run_sources(trace)
    steps = chosen_steps(aligned, len(sources.global_ranks))
    labelled = labelled_run(sources, steps)
    with_waits, n_barriers = with_barriers(labelled.steps)
    stages = stages_of(trace, sources.global_ranks)
    engine = WhatIf(with_waits, stages)
    parts = [
        *_ranks(engine, sources), *_nodes(engine, sources), *_stages(sources, stages),
        *_links(engine, labelled, trace), *_op_classes(labelled),
    ]  # fmt: skip
    gains = engine.gains([tried.part for tried in parts])
    step_ns = engine.step_ns()
    everything = _Tried(Part(), PartKind.ALL, ranks=sources.global_ranks)
    all_gain = engine.gain_of_all([tried.part for tried in parts])
    rows = [
        _row(tried, gain, engine, sources.apart_ns)
        for tried, gain in zip([everything, *parts], [all_gain, *gains], strict=True)
    ]
    return WhatIfReport(
        schema_version=WHAT_IF_SCHEMA_VERSION,
        run_id=run_id,
        step_ns=round(step_ns),
        n_steps=engine.n_steps,
        n_steps_left_out=len(labelled.steps) - engine.n_steps,
        coverage=coverage,
        rows=tuple(
            sorted(rows, key=lambda row: (list(PartKind).index(row.kind), -row.expected_ns))
        ),
        missing=tuple(_missing(engine, sources, n_barriers, len(steps), len(aligned), stages)),
    )


def chosen_steps(aligned: Sequence[AlignedStep], n_ranks: int) -> tuple[AlignedStep, ...]:
    """Steps that all ranks have, without the first (it warms up) where there are others; of many,
    blocks of adjacent ones spread over the run."""
    whole = [step for step in aligned if len(step.members) == n_ranks]
    whole = whole[1:] if len(whole) > 1 else whole
    n_ops = max((sum(m.n_ops for m in step.members.values()) for step in whole), default=0)
    most = max(1, min(MAX_STEPS, MAX_ROWS // max(n_ops, 1)))
    if len(whole) <= most:
        return tuple(whole)
    size = min(BLOCK, most)
    begins = np.linspace(0, len(whole) - size, max(most // size, 1)).astype(int).tolist()
    rows = sorted({row for begin in begins for row in range(begin, begin + size)})
    return tuple(whole[row] for row in rows)


def stages_of(trace: RunTrace, global_ranks: Sequence[int]) -> np.ndarray:
    """The pipeline stage of every rank, all 0 where there are none or the layout is not known."""
    whole = parallel_layout(trace.communicators, trace.world_size)
    if not whole.layout.is_complete:
        return np.zeros(len(global_ranks), np.int64)
    return np.array([whole.by_rank.get(rank, {}).get("pp", 0) for rank in global_ranks], np.int64)


def _ranks(engine: WhatIf, sources: RunSources) -> Iterator[_Tried]:
    excess_ns = engine.rank_excess_ns()
    for i in np.argsort(-excess_ns, kind="stable")[:MAX_PARTS].tolist():
        ranks = (sources.global_ranks[i],)
        own = _mask([i], len(excess_ns))
        yield _Tried(Part(ranks=own), PartKind.RANK, ranks=ranks, has_peers=engine.has_peers(own))


def _nodes(engine: WhatIf, sources: RunSources) -> Iterator[_Tried]:
    by_host: dict[str, list[int]] = defaultdict(list)
    place = {rank: i for i, rank in enumerate(sources.global_ranks)}
    for rank in sources.trace.ranks:
        if place[rank.global_rank] not in by_host[rank.session.host]:
            by_host[rank.session.host].append(place[rank.global_rank])
    if len(by_host) < 2:
        return
    for host, own in by_host.items():
        part = Part(ranks=_mask(own, len(place)), is_joint=True)
        has_peers = engine.has_peers(_mask(own, len(place)))
        yield _Tried(part, PartKind.NODE, host, _named(sources, own), has_peers=has_peers)


def _stages(sources: RunSources, stages: np.ndarray) -> Iterator[_Tried]:
    if not stages.any():
        return
    for stage in np.unique(stages).tolist():
        own = np.flatnonzero(stages == stage).tolist()
        part = Part(ranks=stages == stage, is_stage=True)
        yield _Tried(part, PartKind.STAGE, str(stage), _named(sources, own))


def _links(engine: WhatIf, labelled: LabelledRun, trace: RunTrace) -> Iterator[_Tried]:
    n_links = len(labelled.links)
    excess_ns = engine.link_excess_ns(n_links)
    place = {rank: i for i, rank in enumerate(sorted({r.global_rank for r in trace.ranks}))}
    for i in np.argsort(-excess_ns, kind="stable")[:MAX_PARTS].tolist():
        link = labelled.links[i]
        receiver = [place[link.receiver]] if link.receiver in place else []
        part = Part(links=_mask([i], n_links + 1), perhaps=_mask(receiver, len(place)))
        communicator = trace.communicators[link.comm_id]
        ends = (link.sender, link.receiver) if link.sender >= 0 else communicator.members
        yield _Tried(part, PartKind.LINK, communicator.label, tuple(ends), link)


def _op_classes(labelled: LabelledRun) -> Iterator[_Tried]:
    n_classes = len(labelled.op_classes)
    for i, op_class in enumerate(labelled.op_classes):
        name = f"{op_class.role.value} {op_class.op.name.lower()}"
        yield _Tried(Part(op_classes=_mask([i], n_classes + 1)), PartKind.OP_CLASS, name)


def _mask(chosen: Sequence[int], n: int) -> np.ndarray:
    mask = np.zeros(n, bool)
    mask[list(chosen)] = True
    return mask


def _named(sources: RunSources, own: Sequence[int]) -> tuple[int, ...]:
    return tuple(sources.global_ranks[i] for i in own)


def _row(tried: _Tried, gain: Gain, engine: WhatIf, clock_error_ns: int) -> WhatIfRow:
    """The row; its bounds leave room for what the clocks of the nodes leave open."""
    step_ns = round(engine.step_ns())
    reason = cannot_tell(
        gain.low_ns, gain.expected_ns, gain.high_ns, step_ns=engine.step_ns(),
        n_steps=engine.n_steps, has_peers=tried.has_peers,
        idle_ns=float(engine.idle_ns().max(initial=0)), clock_error_ns=clock_error_ns,
    )  # fmt: skip
    return WhatIfRow(
        kind=tried.kind, name=tried.name, ranks=tried.ranks,
        sender=tried.link.sender if tried.link else -1,
        receiver=tried.link.receiver if tried.link else -1,
        low_ns=max(0, round(gain.low_ns) - clock_error_ns), expected_ns=round(gain.expected_ns),
        high_ns=max(round(gain.high_ns), min(round(gain.high_ns) + clock_error_ns, step_ns)),
        cannot_tell=reason,
    )  # fmt: skip


def _missing(
    engine: WhatIf, sources: RunSources, n_barriers: int, n_chosen: int, n_all: int,
    stages: np.ndarray,
) -> Iterator[Message]:  # fmt: skip
    alone = [sources.global_ranks[i] for i in engine.ranks_alone]
    if alone:
        yield Message(UNEVEN, {"ranks": alone})
    idle_ns = engine.idle_ns()
    if idle_ns.any():
        idle = _named(sources, np.flatnonzero(idle_ns).tolist())
        yield Message(IDLE, {"ranks": list(idle), "idle_ns": round(float(idle_ns.max()))})
    if n_barriers:
        yield Message(BARRIERS, {"n": n_barriers})
    if engine.n_steps_left_out:
        yield Message(LEFT_OUT, {"n": engine.n_steps_left_out})
    if n_chosen < n_all:
        yield Message(SAMPLED, {"n": n_chosen, "n_all": n_all})
    if not stages.any():
        yield Message(NO_STAGES, {})
    yield Message(COMMON, {})
