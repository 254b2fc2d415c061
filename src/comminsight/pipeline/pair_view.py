"""Whom one rank made wait and who made it wait, on demand: no matrix of pairs is ever kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.measures import RunSources, run_sources, step_instances
from comminsight.analysis.waits import PairWait, pairs_of
from comminsight.diagnosis.miscounts import miscounts_in, missing_counts
from comminsight.model.ops import Op
from comminsight.model.pairs_view import PAIRS_SCHEMA_VERSION, PairPart, PairRow, RankPairs
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message
from comminsight.pipeline.step_view import find_rank, find_step

TOP = 10
TOP_PER_STEP = 512  # partners of a step that enter the sum; what is beyond waited least


@dataclass(slots=True)
class _Sum:
    """One partner over the steps so far."""

    wait_ns: int = 0
    n_steps: int = 0
    parts: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, pair: PairWait) -> None:
        """One step more."""
        self.wait_ns += pair.net_ns
        self.n_steps += 1
        for comm_id, op, wait_ns in pair.parts:
            self.parts[comm_id, op] += wait_ns


_Sums = dict[int, _Sum]  # by number of the rank


def rank_pairs(
    trace: RunTrace,
    aligned: Sequence[AlignedStep],
    *,
    run_id: str,
    global_rank: int,
    step: int = -1,
    step_view: str = "raw",
    top: int = TOP,
) -> RankPairs:
    """The ``top`` partners of either kind in one step, or in all that are complete (-1).

    Ranks whose step is not complete are no partners in it, as in the Straggler Index. Raises
    InputError when the run has no such rank or the rank no such step.
    """
    rank = find_rank(trace, global_rank)
    asked = [find_step(tuple(aligned), global_rank, step)[1]] if step >= 0 else aligned
    windows = [one for one in asked if global_rank in one.members]
    whole = [one for one in windows if one.members[global_rank].coverage_complete]
    missing = _missing(trace)
    run = run_sources(trace)
    culprits, victims = _summed(run, [] if missing else whole, global_rank)
    return RankPairs(
        schema_version=PAIRS_SCHEMA_VERSION,
        run_id=run_id,
        global_rank=global_rank,
        host=rank.session.host,
        step=step,
        step_view=step_view,
        n_steps=len(whole),
        n_incomplete=len(windows) - len(whole),
        clock_error_ns=run.apart_ns,
        culprits=tuple(_rows(run, culprits, top)),
        victims=tuple(_rows(run, victims, top)),
        n_culprits=len(culprits),
        n_victims=len(victims),
        missing=missing,
    )


def _missing(trace: RunTrace) -> tuple[Message, ...]:
    """That ops of equal numbers are not the same ops, where calls were not told of."""
    found = miscounts_in(trace)
    known = {one.comm_id: one for one in trace.communicators}
    return (missing_counts(found, known),) if found else ()


def _summed(run: RunSources, steps: Iterable[AlignedStep], global_rank: int) -> tuple[_Sums, _Sums]:
    number = run.global_ranks.index(global_rank)
    culprits: _Sums = defaultdict(_Sum)
    victims: _Sums = defaultdict(_Sum)
    for step in steps:
        whole = {rank: own for rank, own in step.members.items() if own.coverage_complete}
        found, _ = step_instances(run, AlignedStep(step.step, whole))
        pairs = pairs_of(found, number, top=TOP_PER_STEP)
        for sums, told in ((culprits, pairs.culprits), (victims, pairs.victims)):
            for pair in told:
                sums[pair.rank].add(pair)
    return culprits, victims


def _rows(run: RunSources, sums: _Sums, top: int) -> Iterator[PairRow]:
    hosts = {rank.global_rank: rank.session.host for rank in run.trace.ranks}
    worst = sorted(sums.items(), key=lambda item: (-item[1].wait_ns, item[0]))[:top]
    for number, one in worst:
        global_rank = run.global_ranks[number]
        yield PairRow(
            global_rank=global_rank,
            host=hosts[global_rank],
            wait_ns=one.wait_ns,
            n_steps=one.n_steps,
            parts=tuple(_parts(one, run.trace.communicators)),
        )


def _parts(one: _Sum, communicators: Sequence[Communicator]) -> Iterator[PairPart]:
    for (comm_id, op), wait_ns in sorted(one.parts.items(), key=lambda item: (-item[1], item[0])):
        comm = communicators[comm_id]
        name = Op(op).name.lower()
        yield PairPart(op=name, role=comm.role.value, comm_label=comm.label, wait_ns=wait_ns)
