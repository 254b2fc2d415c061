"""The causal chain of every verdict, whole: eight levels in order, each with evidence or unknown.

    job -> role -> step and phase -> communicator -> op -> rank -> node and GPU -> port

A rule states the levels that it knows; what else the run knows of the ranks and the communicator
that the verdict names is filled in here, for all rules alike. Nothing is guessed: a level that
neither tells is ``unknown``, and no evidence stands beside it. Where no cause is singled out, a
level says among how many it was looked for: ``any of 8``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from comminsight.diagnosis.chain import UNKNOWN
from comminsight.model.reference import (
    RefKind,
    comm_ref,
    evidence_ref,
    op_ref_text,
    parse_reference,
    rank_ref,
    step_ref,
    verdict_ref,
)
from comminsight.model.report import RankRow, RunReport
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, ChainLevel, ChainLink, Verdict

MAX_SHOWN = 4
ANY_OF = "any of"


class StopPlace(msgspec.Struct, frozen=True):
    """Where in the training the op of a verdict stands: ``last_step`` is the last whole step of
    ``global_rank`` before it, ``phase`` the phase that all ops like it lay in; "" unknown."""

    global_rank: int
    last_step: int
    phase: str = ""


FindStop = Callable[[Verdict], StopPlace | None]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the report knows, by number."""

    world_size: int
    ranks: Mapping[int, RankRow]
    communicators: Mapping[int, Communicator]


def with_whole_chains(report: RunReport, find_stop: FindStop = lambda _: None) -> RunReport:
    """The report with the chain of every verdict completed; ``find_stop`` tells the step of what
    did not end, where steps are known."""
    known = _Known(
        world_size=report.facts.world_size or report.coverage.ranks_expected,
        ranks={row.global_rank: row for row in report.ranks},
        communicators={one.comm_id: one for one in report.communicators},
    )
    verdicts = tuple(
        msgspec.structs.replace(one, chain=whole_chain(one, number, known, find_stop))
        for number, one in enumerate(report.verdicts, start=1)
    )
    return msgspec.structs.replace(report, verdicts=verdicts)


def whole_chain(
    verdict: Verdict, number: int, known: _Known, find_stop: FindStop
) -> tuple[ChainLink, ...]:
    """The levels in order: the rule's own word first, then the run's; ``number`` is the place of
    the verdict in its report."""
    stated = {link.level: link for link in verdict.chain}
    links = []
    for level in ChainLevel:
        value, evidence = _FILLED[level](verdict, known, find_stop)
        link = stated.get(level)
        if link is not None and not _is_open(link.value):
            same = link.value == value or level is not ChainLevel.STEP
            stated_ref = "" if _is_own(link.evidence) else link.evidence
            evidence = stated_ref or (evidence if same else "")
            value = _joined(level, link.value, value)
        if not value and verdict.cause is Cause.NO_VERDICT:
            value, evidence = _looked_at(level, verdict, known)
        if not value:
            links.append(ChainLink(level, UNKNOWN))
        else:
            links.append(ChainLink(level, value, evidence or _own(verdict, number)))
    return tuple(links)


def _is_open(value: str) -> bool:
    return value.lower() in {UNKNOWN, ""} or value.startswith(f"{ANY_OF} ")


def _looked_at(level: ChainLevel, verdict: Verdict, known: _Known) -> tuple[str, str]:
    """Among how many ranks, communicators, steps or nodes nothing was singled out."""
    coverage = verdict.coverage
    n_looked_at = {
        ChainLevel.STEP: coverage.steps_used + coverage.steps_excluded,
        ChainLevel.COMMUNICATOR: len(known.communicators),
        ChainLevel.RANK: coverage.ranks_seen,
        ChainLevel.NODE: len({row.host for row in known.ranks.values()} - {""}),
    }.get(level, 0)
    return (f"{ANY_OF} {n_looked_at}", "run") if n_looked_at else ("", "")


def _own(verdict: Verdict, number: int) -> str:
    """What a rule states without saying where stands in its evidence."""
    return evidence_ref(number, 1) if verdict.evidence else verdict_ref(number)


def _is_own(evidence: str) -> bool:
    """True for what leads into the verdict itself, whose number another report may change."""
    reference = parse_reference(evidence)
    return reference is not None and reference.kind in {RefKind.VERDICT, RefKind.EVIDENCE}


def _joined(level: ChainLevel, stated: str, known: str) -> str:
    """The rule's word; of a node the GPU is added where only the run knows it."""
    if level is ChainLevel.NODE and known.startswith(f"{stated}, "):
        return known
    return stated


def _job(verdict: Verdict, known: _Known, _: FindStop) -> tuple[str, str]:
    n_ranks = known.world_size or verdict.coverage.ranks_expected
    return (f"{n_ranks} ranks", "run") if n_ranks else ("", "")


def _role(verdict: Verdict, known: _Known, _: FindStop) -> tuple[str, str]:
    """The role of the communicator, else the places of the ranks in the parallel layout."""
    communicator = known.communicators.get(verdict.comm_id)
    if communicator is not None and communicator.role.value != UNKNOWN.upper():
        return communicator.role.value, comm_ref(verdict.comm_id)
    placed = [row for row in _rows(verdict, known) if row.coords]
    names = sorted({row.coords for row in placed})
    return _shown(names), rank_ref(row.global_rank for row in placed)


def _step(verdict: Verdict, _: _Known, find_stop: FindStop) -> tuple[str, str]:
    """The steps that the verdict names; of what stopped, the last whole step before it."""
    first, last = verdict.first_step, verdict.last_step
    if first >= 0:
        named = [*verdict.culprits, *verdict.victims]
        value = f"{first}-{last}" if last > first else str(first)
        return value, step_ref(named[0], first) if named else ""
    stop = find_stop(verdict) if verdict.first_bad_op is not None else None
    if stop is None:
        return "", ""
    phase = f", {stop.phase}" if stop.phase else ""
    return f"after {stop.last_step}{phase}", step_ref(stop.global_rank, stop.last_step)


def _communicator(verdict: Verdict, known: _Known, _: FindStop) -> tuple[str, str]:
    communicator = known.communicators.get(verdict.comm_id)
    if communicator is None:
        return "", ""
    return communicator.label, comm_ref(verdict.comm_id)


def _op(verdict: Verdict, _: _Known, __: FindStop) -> tuple[str, str]:
    op = verdict.first_bad_op
    if op is None:
        return "", ""
    places = (
        op_ref_text(one.comm_id, one.op_seq, one.global_rank)
        for one in verdict.evidence
        if one.op_seq > 0 and (one.comm_id, one.match_seq) == (op.comm_id, op.match_seq)
    )
    return f"{op.op} #{op.match_seq}", next(filter(None, places), "")


def _rank(verdict: Verdict, _: _Known, __: FindStop) -> tuple[str, str]:
    ranks = sorted(verdict.culprits)
    return ", ".join(map(str, ranks)), rank_ref(ranks)


def _node(verdict: Verdict, known: _Known, _: FindStop) -> tuple[str, str]:
    rows = _rows(verdict, known)
    hosts = sorted({row.host for row in rows} - {""})
    devices = sorted({row.device for row in rows} - {""})
    if not hosts:
        return "", ""
    return ", ".join([*hosts, *devices[:MAX_SHOWN]]), rank_ref(row.global_rank for row in rows)


def _port(_: Verdict, __: _Known, ___: FindStop) -> tuple[str, str]:
    """Only a rule that has a map from ranks to ports names one."""
    return "", ""


_FILLED: dict[ChainLevel, Callable[[Verdict, _Known, FindStop], tuple[str, str]]] = {
    ChainLevel.JOB: _job,
    ChainLevel.ROLE: _role,
    ChainLevel.STEP: _step,
    ChainLevel.COMMUNICATOR: _communicator,
    ChainLevel.OP: _op,
    ChainLevel.RANK: _rank,
    ChainLevel.NODE: _node,
    ChainLevel.PORT: _port,
}


def _rows(verdict: Verdict, known: _Known) -> list[RankRow]:
    return [known.ranks[rank] for rank in sorted(verdict.culprits) if rank in known.ranks]


def _shown(names: list[str]) -> str:
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
