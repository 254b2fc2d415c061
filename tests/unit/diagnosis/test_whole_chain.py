"""The chain law: eight levels in order, each unknown or with evidence that can be opened."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.killed import judge_killed
from comminsight.diagnosis.speed import judge_speed
from comminsight.diagnosis.whole_chain import StopPlace, with_whole_chains
from comminsight.model.hang import Liveness
from comminsight.model.ops import CommRole
from comminsight.model.reference import RefKind, parse_reference
from comminsight.model.report import RankRow, RunFacts, RunReport
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Coverage,
    Evidence,
    Message,
    OpRef,
    Verdict,
)
from comminsight.report import json_form, verdict_text
from comminsight.report.catalogue import catalogue
from tests.builders.chains import faults
from tests.builders.json_schema import violations
from tests.unit.diagnosis.events import AR, BC, RECV, came, comm, event, op, state
from tests.unit.diagnosis.tables import coverage, late, quiet

BARE = RunReport(
    schema_version="1.0.0", facts=RunFacts(run_id="", path="", world_size=0, ranks_seen=0),
    coverage=Coverage(ranks_expected=0, ranks_seen=0),
)  # fmt: skip
WORLD = (comm(0, range(4), CommRole.GLOBAL), comm(1, (0, 1)), comm(2, (2, 3)))


def verdicts() -> Iterator[tuple[str, Verdict]]:
    """Verdicts of the rules on hangs, ends and speed, by the cause that each must have."""
    waiting = [op(rank, 0, AR, 9) for rank in (0, 1, 2)]
    done = [came(rank, 0, 9, 8) for rank in (0, 1, 2)]
    behind = came(3, 0, 8, is_current=True)
    yield "RANK_NOT_ENTERED", judge_hang(event(4, waiting, [*done, behind]), WORLD)
    gone = {3: state(3, Liveness.DEAD, exit_status="signal 9 (SIGKILL)")}
    yield "RANK_DEAD", judge_hang(event(4, waiting, [*done, behind], states=gone), WORLD)
    yield "NO_VERDICT", judge_hang(event(4, waiting, done, states={3: None}), WORLD)
    all_in = [op(rank, 0, AR, 9) for rank in range(4)]
    yield "ALL_PRESENT_STUCK", judge_hang(event(4, all_in), WORLD)
    mixed = [*all_in[:3], op(3, 0, BC, 9)]
    yield "OP_TYPE_MISMATCH", judge_hang(event(4, mixed), WORLD)
    young = [op(0, 0, AR, 9, age_s=1)]
    yield "NO_VERDICT", judge_hang(event(4, young), WORLD)
    half = [op(0, 1, RECV, 1, peer=1)]
    known = [came(1, 1, 0, peer=0, way=1, is_current=True)]
    yield (
        "P2P_UNMATCHED",
        judge_hang(event(2, half, known, states={1: state(1, Liveness.CLOSED)}), WORLD),
    )
    everybody = {
        rank: state(rank, Liveness.DEAD, exit_status="signal 15 (SIGTERM)") for rank in range(4)
    }
    yield "JOB_KILLED", judge_killed(event(4, (), states=everybody), WORLD)
    yield "HEALTHY", judge_killed(event(4, ()), WORLD)
    slow = late(quiet(coords=[f"dp{rank}" for rank in range(8)]), 3, 30.0)
    for measures in (slow, quiet(), quiet(4)):
        judged = judge_speed(measures, WORLD, coverage(len(measures.global_ranks)))
        yield judged.cause.value, judged


ALL = list(verdicts())


def report_of(*made: Verdict) -> RunReport:
    """Two nodes of two ranks, each with its GPU."""
    rows = tuple(
        RankRow(
            global_rank=rank, host=f"node{rank // 2}", n_steps=3, straggler_index_pct=0.0,
            caused_wait_ns=0, origin_delay_ns=0, passed_on_delay_ns=0, waited_ns=0,
            coords=f"dp{rank}", device=f"gpu {rank % 2}",
        )
        for rank in range(4)
    )  # fmt: skip
    seen = Coverage(ranks_expected=4, ranks_seen=4)
    facts = RunFacts(run_id="r", path="/r", world_size=4, ranks_seen=4)
    return RunReport(
        schema_version="1.0.0", facts=facts, coverage=seen, communicators=WORLD, ranks=rows,
        verdicts=made,
    )  # fmt: skip


def chain_of(verdict: Verdict, stop: StopPlace | None = None) -> dict[ChainLevel, ChainLink]:
    (made,) = with_whole_chains(report_of(verdict), lambda _: stop).verdicts
    return {link.level: link for link in made.chain}


@pytest.mark.parametrize(
    ("cause", "verdict"), ALL, ids=[f"{n} {c}" for n, (c, _) in enumerate(ALL)]
)
def test_every_verdict_has_a_whole_chain_and_follows_the_schema(
    cause: str, verdict: Verdict
) -> None:
    assert verdict.cause.value == cause
    for made in with_whole_chains(report_of(verdict, verdict)).verdicts:
        assert faults(made.chain) == []
    report = with_whole_chains(report_of(verdict))
    for name, document in (
        ("verdict", json_form.verdict_json(report, 1)),
        ("run-report", json_form.report_json(report)),
    ):
        assert violations(json.loads(document), json_form.schema(name)) == []


def test_the_law_sees_what_is_against_it() -> None:
    link = ChainLink(ChainLevel.JOB, "4 ranks")
    rest = [ChainLink(level, "unknown") for level in list(ChainLevel)[1:]]
    assert faults((link, *rest)) == ["job: '4 ranks' by ''"]
    assert faults(tuple(rest)) == ["levels"]
    assert faults((ChainLink(ChainLevel.JOB, "unknown", "run"), *rest)) != []


def test_a_hang_leads_from_the_job_to_the_gpu() -> None:
    chain = chain_of(dict(ALL)["RANK_NOT_ENTERED"], StopPlace(3, 41, "backward"))
    assert {level.value: (link.value, link.evidence) for level, link in chain.items()} == {
        "job": ("4 ranks", "run"),
        "role": ("GLOBAL", "comm:0"),
        "step": ("after 41, backward", "rank:3/step:41"),
        "communicator": ("GLOBAL mesh_global#0", "comm:0"),
        "op": ("all_reduce #9", "op:0:9@0"),
        "rank": ("3", "rank:3"),
        "node": ("node0", "rank:3"),  # as the observer of the hang saw it, before the table
        "port": ("unknown", ""),
    }


def test_the_gpu_is_told_where_the_node_is_the_same() -> None:
    verdict = replace(dict(ALL)["RANK_NOT_ENTERED"], chain=())
    node = chain_of(verdict)[ChainLevel.NODE]
    assert (node.value, node.evidence) == ("node1, gpu 1", "rank:3")
    stated = replace(verdict, chain=(ChainLink(ChainLevel.NODE, "node1"),))
    assert chain_of(stated)[ChainLevel.NODE].value == "node1, gpu 1"


def plain(**more: object) -> Verdict:
    fields = {
        "rule": "r", "cause": Cause.SLOW_LINK, "confidence": Confidence.LOW,
        "coverage": Coverage(ranks_expected=4, ranks_seen=4),
    }  # fmt: skip
    return Verdict(**(fields | more))


def test_what_a_rule_states_alone_leads_to_its_evidence() -> None:
    said = (Evidence(kind="counter", message=Message("x")),)
    port = (ChainLink(ChainLevel.PORT, "mlx5_0/1"),)
    made = with_whole_chains(report_of(plain(), plain(chain=port, evidence=said))).verdicts[1]
    assert made.chain[-1] == ChainLink(ChainLevel.PORT, "mlx5_0/1", "evidence:2.1")
    # the number is that of the report it stands in, also when it has been in another
    (alone,) = with_whole_chains(report_of(made)).verdicts
    assert alone.chain[-1].evidence == "evidence:1.1"
    (bare,) = with_whole_chains(report_of(plain(chain=port))).verdicts
    assert bare.chain[-1].evidence == "verdict:1"


def test_without_a_table_of_ranks_nothing_is_guessed() -> None:
    verdict = plain(culprits=(2,), comm_id=7, first_bad_op=OpRef(
        comm_id=7, comm_label="x", op="send", match_seq=1,
    ))  # fmt: skip
    seen = Coverage(ranks_expected=4, ranks_seen=1)
    facts = RunFacts(run_id="", path="", world_size=0, ranks_seen=1)
    empty = RunReport(schema_version="1.0.0", facts=facts, coverage=seen, verdicts=(verdict,))
    (made,) = with_whole_chains(empty).verdicts
    known = {link.level.value: link.value for link in made.chain if link.value != "unknown"}
    assert known == {"job": "4 ranks", "op": "send #1", "rank": "2"}
    assert made.chain[4].evidence == "verdict:1"


def test_the_steps_of_a_slow_rank_are_its_own() -> None:
    (chosen,) = [v for c, v in ALL if c == "COMPUTE_STRAGGLER"]
    chain = chain_of(chosen)
    reference = parse_reference(chain[ChainLevel.STEP].evidence)
    assert reference is not None
    assert (reference.kind, reference.ranks) == (RefKind.STEP, chosen.culprits)
    assert chain[ChainLevel.STEP].value == f"{chosen.first_step}-{chosen.last_step}"


def test_no_verdict_says_among_how_many_it_looked() -> None:
    """And nothing that could be taken for an accusation."""
    seen = Coverage(ranks_expected=8, ranks_seen=6, steps_used=3, steps_excluded=1)
    silent = Verdict(
        rule="straggler", cause=Cause.NO_VERDICT, confidence=Confidence.NONE, coverage=seen
    )
    rows = [
        RankRow(
            global_rank=rank,
            host=f"n{rank // 4}",
            n_steps=4,
            straggler_index_pct=0.0,
            caused_wait_ns=0,
            origin_delay_ns=0,
            passed_on_delay_ns=0,
            waited_ns=0,
        )
        for rank in range(6)
    ]
    report = replace(BARE, coverage=seen, verdicts=(silent,), ranks=tuple(rows))
    (told,) = with_whole_chains(report).verdicts
    values = {link.level.value: link.value for link in told.chain}
    assert values == {
        "job": "8 ranks", "role": "unknown", "step": "any of 4", "communicator": "unknown",
        "op": "unknown", "rank": "any of 6", "node": "any of 2", "port": "unknown",
    }  # fmt: skip
    assert faults(told.chain) == []
    again = with_whole_chains(replace(report, verdicts=(told,))).verdicts[0]
    assert again.chain == told.chain
    for lang in ("en", "zh"):
        said = verdict_text.headline(told, report, catalogue(lang))
        assert "any of" not in said
        assert verdict_text.chain_value(told.chain[5], catalogue(lang)) == (
            catalogue(lang).text("chain.any_of", n=6)
        )


def test_a_verdict_that_names_a_cause_does_not_list_what_it_did_not_find() -> None:
    seen = Coverage(ranks_expected=8, ranks_seen=8)
    found = Verdict(
        rule="x", cause=Cause.KNOWN_BAD_VERSION, confidence=Confidence.LOW, coverage=seen
    )
    (told,) = with_whole_chains(replace(BARE, verdicts=(found,))).verdicts
    assert {link.value for link in told.chain[1:]} == {"unknown"}
