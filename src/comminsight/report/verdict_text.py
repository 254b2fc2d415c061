"""A verdict in words: its sentence, its block of facts, its chain, its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from comminsight.model.reference import parse_reference
from comminsight.model.report import RunReport
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Evidence,
    MessageParam,
    OpRef,
    Verdict,
)
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue

if TYPE_CHECKING:  # the launcher tells a verdict in one sentence and needs no page
    from comminsight.report.page import Page

_RANKS = re.compile(r"(\d{1,9}) ranks", re.ASCII)
_ANY_OF = re.compile(r"any of (\d+)")
_AFTER = re.compile(r"after (\d{1,9})(, \w{1,32})?", re.ASCII)
_MEASURE = re.compile(r"([a-z_]+)=(-?\d+(?:\.\d+)?)", re.ASCII)

HANG_CAUSES = frozenset(
    {
        Cause.RANK_DEAD,
        Cause.RANK_NOT_ENTERED,
        Cause.CONTROL_FLOW_SKIP,
        Cause.EXTRA_COLLECTIVE,
        Cause.LONG_LEGIT_OP,
        Cause.OP_TYPE_MISMATCH,
        Cause.SHAPE_MISMATCH,
        Cause.DTYPE_MISMATCH,
        Cause.ROOT_MISMATCH,
        Cause.P2P_UNMATCHED,
        Cause.P2P_CYCLE,
        Cause.CROSS_GROUP_CYCLE,
        Cause.ORDER_INVERSION,
        Cause.ALL_PRESENT_STUCK,
        Cause.GROUP_MISUSE,
        Cause.INIT_STUCK,
        Cause.HOST_BLOCKED,
        Cause.KERNEL_NOT_STARTED,
        Cause.PEER_UNREACHABLE,
    }
)
HANG_RULE = "hang"  # also where it names nobody
FINISHED_RULE = "finished"  # its ops went through
ABSENT_CAUSES = frozenset({Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP, Cause.P2P_UNMATCHED})
SLOW_CAUSES = frozenset(
    {
        Cause.COMPUTE_STRAGGLER,
        Cause.INPUT_STRAGGLER,
        Cause.LOAD_IMBALANCE,
        Cause.SLOW_LINK,
    }
)
MAX_NODES = 3
MAX_EVIDENCE = 8
MAX_STACKS = 3

COST_NS = "step_cost_ns"
COST_RATIO = "step_cost_ratio"
WAIT_NS = "longest_wait_ns"


def is_hang(verdict: Verdict) -> bool:
    """True for a verdict on an op that does not, or did not, go on."""
    return verdict.cause in HANG_CAUSES and verdict.rule != FINISHED_RULE


def headline(verdict: Verdict, report: RunReport, words: Catalogue) -> str:
    """The verdict in one sentence."""
    code, said = _headline_code(verdict)
    params = {
        "ranks": list(verdict.culprits),
        "where": _where(verdict, report, words),
        "op": op_phrase(verdict.first_bad_op, words),
        "place": _place(verdict.chain),
        "n_steps": verdict.coverage.steps_used,
        "n_ranks": verdict.coverage.ranks_seen,
    }
    head = words.text(code, **(params | said))
    return _sentence([head, *_clauses(verdict, words)], words)


# what a piece of evidence makes of a cause; that of no verdict fills in its parameters
_HEADLINE_BY_EVIDENCE = (
    (Cause.RANK_DEAD, "evidence.left", "headline.RANK_LEFT"),
    (Cause.ALL_PRESENT_STUCK, "evidence.lagging", "headline.LAGGING"),
    (Cause.ALL_PRESENT_STUCK, "evidence.frozen", "headline.FROZEN"),
    (Cause.GROUP_MISUSE, "evidence.group_claim", "headline.GROUPS_DIFFER"),
    (Cause.NO_VERDICT, "evidence.recurs_rotating", "headline.DELAY_WANDERS"),
    (Cause.NO_VERDICT, "evidence.pending", "headline.PENDING"),
    (Cause.NO_VERDICT, "evidence.not_yet", "headline.NOT_YET"),
)


# where no rank is named
_HEADLINE_OF_NOBODY = {
    Cause.LOAD_IMBALANCE: "headline.LOAD_MOVES",
    Cause.PEER_UNREACHABLE: "headline.UNREACHABLE",
    Cause.RANK_DEAD: "headline.NODE_FAILED",
}


def _headline_code(verdict: Verdict) -> tuple[str, dict[str, MessageParam]]:
    """The code, and what the evidence says beyond the verdict's own numbers.

    A rank that left in order did not die, though its peers miss it all the same; processes that
    all failed were not ended from outside; delays that wander are more than no verdict.
    """
    said = {entry.message.code: entry.message.params for entry in reversed(verdict.evidence)}
    for cause, evidence, code in _HEADLINE_BY_EVIDENCE:
        if verdict.cause is cause and evidence in said:
            return code, said[evidence] if cause is Cause.NO_VERDICT else {}
    if verdict.cause is Cause.RANK_NOT_ENTERED and verdict.coverage.records_lost:
        return "headline.NOT_ENTERED_BY", {}
    if verdict.cause in _HEADLINE_OF_NOBODY and not verdict.culprits:
        return _HEADLINE_OF_NOBODY[verdict.cause], {}
    if verdict.cause is Cause.JOB_KILLED and _have_all_failed(verdict):
        return "headline.JOB_FAILED", {}
    if is_open_link(verdict) and "evidence.run_slower" in said:
        return "headline.SLOW_RUN", said["evidence.run_slower"]
    if is_open_link(verdict) and "evidence.transfer" not in said:
        return "headline.SLOW_PATH", {}
    if is_open_link(verdict):
        return "headline.SLOW_LINK_OPEN", {"comm": "", **said["evidence.transfer"]}
    return f"headline.{verdict.cause}", {}


def meaning_name(verdict: Verdict) -> str:
    """The name of the sentence that says what the verdict means: its cause, or a form of it."""
    if is_open_link(verdict):
        return "SLOW_LINK_OPEN"
    is_frozen = _headline_code(verdict)[0] == "headline.FROZEN"
    return "FROZEN" if is_frozen else verdict.cause.value


def is_open_link(verdict: Verdict) -> bool:
    """True for slow transfers of which neither end can be named."""
    return verdict.cause is Cause.SLOW_LINK and not verdict.culprits


def _have_all_failed(verdict: Verdict) -> bool:
    """True when every process is known to have ended with an exit code."""
    ends = [e.message.params for e in verdict.evidence if e.message.code == "evidence.died"]
    return bool(ends) and all(
        str(end.get("exit_status", "")).startswith("exit code") for end in ends
    )


def no_verdict_headline(words: Catalogue) -> str:
    """The sentence for a report that no rule spoke in."""
    return _sentence([words.text("headline.NONE")], words)


def _sentence(clauses: Iterable[str], words: Catalogue) -> str:
    joined = words.text("clause.join").join(clauses)
    return words.text("clause.end", sentence=joined[:1].upper() + joined[1:])


def _clauses(verdict: Verdict, words: Catalogue) -> Iterator[str]:
    if verdict.cause in SLOW_CAUSES:
        if verdict.first_step >= 0:
            yield words.text("clause.since", step=verdict.first_step)
        if COST_NS in verdict.measures:
            cost_ns, ratio = verdict.measures[COST_NS], verdict.measures.get(COST_RATIO)
            code = "clause.cost" if ratio is None else "clause.cost_ratio"
            yield words.text(code, cost_ns=cost_ns, ratio=ratio)
    is_told = verdict.cause is Cause.PEER_UNREACHABLE and verdict.first_bad_op is None
    if is_hang(verdict) and verdict.victims and not is_told:  # they say so and end
        wait_ns = verdict.measures.get(WAIT_NS)
        code = "clause.waiting" if wait_ns is None else "clause.waiting_for"
        yield words.text(code, victims=list(verdict.victims), wait_ns=wait_ns)


def op_phrase(op: OpRef | None, words: Catalogue) -> str:
    """An op instance as a noun phrase."""
    if op is None:
        return words.text("op.none")
    code = "op.collective" if op.peer < 0 else "op.p2p"
    if op.sender >= 0 and op.receiver >= 0:
        code = "op.transfer"
    name = words.text("op.replayed", op=op.op) if op.is_replay else op.op
    return words.text(
        code, op=name, n=op.match_seq, comm=op.comm_label, peer=op.peer,
        sender=op.sender, receiver=op.receiver,
    )  # fmt: skip


def nodes_of(ranks: Iterable[int], report: RunReport) -> list[str]:
    """The nodes of ``ranks`` as far as the rank rows know them, each once."""
    hosts = {row.global_rank: row.host for row in report.ranks}
    return list(dict.fromkeys(host for rank in ranks if (host := hosts.get(rank))))


def devices_of(ranks: Iterable[int], report: RunReport) -> list[str]:
    """The GPUs of ``ranks`` as far as the rank rows know them."""
    named = {row.global_rank: row.device for row in report.ranks}
    return [device for rank in ranks if (device := named.get(rank))]


def _where(verdict: Verdict, report: RunReport, words: Catalogue) -> str:
    nodes = nodes_of(verdict.culprits, report) or _chain_nodes(verdict.chain)
    return words.text("who.where", nodes=nodes) if 0 < len(nodes) <= MAX_NODES else ""


def _place(chain: Iterable[ChainLink]) -> str:
    """The port that the chain names, else its communicator, else its node, else ""."""
    known = {link.level: link.value for link in chain if _names_one(link)}
    levels = (ChainLevel.PORT, ChainLevel.COMMUNICATOR, ChainLevel.NODE)
    return next((known[level] for level in levels if level in known), "")


def _chain_nodes(chain: Iterable[ChainLink]) -> list[str]:
    return [link.value for link in chain if link.level is ChainLevel.NODE and _names_one(link)]


def _names_one(link: ChainLink) -> bool:
    return link.value != "unknown" and _ANY_OF.fullmatch(link.value) is None


def write_verdict(page: Page, verdict: Verdict, report: RunReport) -> None:
    """The block of one verdict: facts and measures, chain, evidence with stacks."""
    rows = [*_identity_rows(verdict, report, page.words), *measure_rows(verdict)]
    if any(value for _, value in rows):
        page.heading(_block_heading(verdict), cause=verdict.cause.value)
        page.fields(rows)
    if verdict.chain:
        page.heading("chain")
        page.fields((link.level.value, chain_value(link, page.words)) for link in verdict.chain)
    write_evidence(page, verdict.evidence)


def _block_heading(verdict: Verdict) -> str:
    if verdict.cause is Cause.JOB_KILLED:
        return "end"
    if is_hang(verdict) or verdict.rule == HANG_RULE:
        return "hang"
    if verdict.culprits:
        return "culprit"
    is_speed = verdict.cause in SLOW_CAUSES or verdict.first_step >= 0
    return "speed" if is_speed or verdict.cause is Cause.NO_VERDICT else "found"


def _identity_rows(
    verdict: Verdict, report: RunReport, words: Catalogue
) -> Iterator[tuple[str, str]]:
    is_stuck = is_hang(verdict)
    places = {row.global_rank: row.coords for row in report.ranks}
    coords = [place for rank in verdict.culprits if (place := places.get(rank))]
    yield (
        "absent" if verdict.cause in ABSENT_CAUSES else "culprits",
        numbers.rank_list(verdict.culprits),
    )
    yield "node", ", ".join(nodes_of(verdict.culprits, report)[:MAX_NODES])
    yield "place", ", ".join(coords[:MAX_NODES])
    yield "device", ", ".join(devices_of(verdict.culprits, report)[:MAX_NODES])
    yield "steps", _step_range(verdict, words)
    if (op := verdict.first_bad_op) is not None:
        yield "operation", f"{op.op} #{op.match_seq}"
        if op.sender >= 0 and op.receiver >= 0:
            yield "transfer", words.text("op.direction", sender=op.sender, receiver=op.receiver)
        yield "communicator", op.comm_label
        yield "size", " ".join([numbers.size(op.size_bytes), op.dtype]) if op.size_bytes else ""
    yield "waiting" if is_stuck else "victims", numbers.rank_list(verdict.victims)
    whole = [row.step for row in report.steps if row.is_complete] if is_stuck else []
    yield "last_step", numbers.count(max(whole)) if whole else ""


def _step_range(verdict: Verdict, words: Catalogue) -> str:
    first, last = verdict.first_step, verdict.last_step
    if first < 0:
        return ""
    return words.text("steps.range", first=first, last=last) if last > first else str(first)


def measure_rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """(label code, quantity) of each measure; a ratio beside its quantity stays its own row."""
    for key, value in verdict.measures.items():
        yield key, numbers.quantity(key, value)


def chain_value(link: ChainLink, words: Catalogue) -> str:
    """The level's value, and the measure behind it where ``key=number`` names one."""
    value = words.word("word", link.value)
    if link.level is ChainLevel.JOB and (match := _RANKS.fullmatch(link.value)):
        value = words.text("chain.job", n=int(match[1]))
    if link.level is ChainLevel.STEP and (match := _AFTER.fullmatch(link.value)):
        value = words.text("chain.after_step", step=int(match[1]), phase=match[2] or "")
    if match := _ANY_OF.fullmatch(link.value):
        value = words.text("chain.any_of", n=int(match[1]))
    said = "" if parse_reference(link.evidence) else link.evidence  # `explain` tells references
    if match := _MEASURE.fullmatch(said):
        key, number = match[1], float(match[2])
        shown = numbers.quantity(key, number)
        said = words.text("chain.measure", what=words.word("field", key), value=shown)
    return f"{value}  ({said})" if said else value


def write_evidence(page: Page, evidence: Iterable[Evidence]) -> None:
    """What supports a verdict, then the stacks and log lines word for word."""
    entries = list(evidence)
    if not entries:
        return
    page.heading("evidence")
    shown = [evidence_line(entry, page.words) for entry in entries[:MAX_EVIDENCE]]
    if len(entries) > MAX_EVIDENCE:
        shown.append(page.words.text("note.more_evidence", n=len(entries) - MAX_EVIDENCE))
    page.bullets(shown)
    stacks = [entry for entry in entries if entry.text]
    for entry in stacks[:MAX_STACKS]:
        code = "note.verbatim" if entry.global_rank >= 0 else "note.verbatim_line"
        page.sentence("    " + page.words.text(code, rank=entry.global_rank))
        page.verbatim(entry.text)
    if len(stacks) > MAX_STACKS:
        page.bullets([page.words.text("note.more_stacks", n=len(stacks) - MAX_STACKS)])


def evidence_line(entry: Evidence, words: Catalogue) -> str:
    """What an evidence says, and in brackets where it stands."""
    places = [
        words.text(f"place.{name}", value=value)
        for name, value, is_known in (
            ("rank", entry.global_rank, entry.global_rank >= 0),
            ("step", entry.step, entry.step >= 0),
            ("comm", entry.comm_id, entry.comm_id >= 0),
            ("match_seq", entry.match_seq, entry.match_seq > 0),
            ("op_seq", entry.op_seq, entry.op_seq > 0),
            ("seq", entry.seq, entry.seq > 0),
        )
        if is_known
    ]
    line = words.message(entry.message)
    return f"{line}  [{', '.join(places)}]" if places else line
