"""Words that depend on what was found: numbers of things, whom a verdict names, how a job ended;
and a Chinese report speaks Chinese."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from comminsight.model.report import RunFacts
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Coverage,
    Evidence,
    Message,
    OpRef,
    Verdict,
)
from comminsight.model.views import TemplateScore
from comminsight.report.catalogue import catalogue
from comminsight.report.steps_text import render_steps
from comminsight.report.text import coverage_lines, end_word, killed_ranks, render_report
from tests.unit.report.reports import COVERAGE, FACTS, HANG, STRAGGLER, report

TRANSFER = Message("evidence.transfer", {"ranks": [1, 2], "comm": "DP dp#0", "cost_ns": 7_000_000})
OPEN_LINK = Verdict(
    rule="slow_link", cause=Cause.SLOW_LINK, confidence=STRAGGLER.confidence, coverage=COVERAGE,
    victims=(1, 2), chain=(ChainLink(ChainLevel.NODE, "vm"),),
    evidence=(Evidence(kind="measure", message=TRANSFER),),
)  # fmt: skip


def died(rank: int, status: str) -> Evidence:
    said = Message("evidence.died", {"rank": rank, "exit_status": status})
    return Evidence(kind="process", message=said, global_rank=rank)


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 ops"), (1, "1 op"), (2, "2 ops"), (1000, "1,000 ops")]
)
def test_a_noun_after_its_number(n: int, text: str) -> None:
    said = catalogue("en").text("missing.communicator", n_ops=n)
    assert said.startswith(f"the communicators of {text} in flight")


def test_no_english_sentence_counts_one_thing_as_many() -> None:
    """A number with its noun has the noun's ending: none is left in the plural for good."""
    words = catalogue("en")
    ones = dict.fromkeys(("n", "n_steps", "n_ops", "n_files", "n_sessions", "used", "read", "lost",
                          "expected", "n_ranks", "n_members", "n_runs"), 1)  # fmt: skip
    nouns = r"(ops|steps|ranks|records|files|lines|stacks|members|frames|processes|boxes|runs)"
    said = [words.text(code, **ones) for code in words.templates]
    wrong = [
        text for text in said if re.search(rf"(?<!of )\b1 (?:more |lost |other )?{nouns}\b", text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("lang", "wanted", "unwanted"),
    [
        ("en", "Transfers of DP dp#0 were slow", ("no known rank", "this rank")),
        ("zh", "通信域 DP dp#0 中的传输偏慢", ("未知 Rank", "该 Rank")),
    ],
)
def test_slow_transfers_without_a_name(lang: str, wanted: str, unwanted: tuple[str, ...]) -> None:
    text = render_report(report(OPEN_LINK), lang=lang)
    assert text.startswith(wanted)
    assert [words for words in unwanted if words in text] == []


def test_a_measure_in_the_chain_has_its_name_and_unit() -> None:
    links = (
        ChainLink(ChainLevel.JOB, "4 ranks"),
        ChainLink(ChainLevel.RANK, "3", "step_cost_ns=77776133"),
    )
    made = report(replace(STRAGGLER, chain=links))
    assert "  rank  3  (cost per step 77.8 ms)\n" in render_report(made)
    zh = render_report(made, lang="zh")
    assert "  Rank  3  (每个 Step 多花 77.8 ms)\n" in zh
    assert "  任务  4 个 Rank\n" in zh


def test_a_job_that_was_ended_is_not_told_under_speed() -> None:
    text = render_report(report(replace(HANG, cause=Cause.JOB_KILLED, culprits=())))
    assert "\nHow the job ended\n" in text
    assert "Speed of the steps" not in text


@pytest.mark.parametrize(
    ("end", "code", "word"),
    [
        ("killed", 1, "failed"),
        ("exited", 3, "failed"),
        ("exited", 0, "exited"),
        ("killed", 137, "killed"),
        ("killed", None, "killed"),
        ("running", None, "running"),
    ],
)
def test_how_the_command_ended(end: str, code: int | None, word: str) -> None:
    facts = RunFacts(run_id="", path="", world_size=0, ranks_seen=0, end=end, exit_code=code)
    assert end_word(facts) == word


def test_only_ranks_ended_by_a_signal_were_killed() -> None:
    evidence = (died(1, "exit code 1"), died(2, "signal 9 (SIGKILL)"))
    facts = replace(FACTS, end="killed", exit_code=1, killed_ranks=(1, 2, 3))
    made = report(replace(HANG, evidence=evidence), facts=facts)
    assert killed_ranks(made) == [2, 3]
    assert "failed, exit code 1 after 2 min 5 s; cut off: ranks 2-3" in render_report(made)
    zh = render_report(made, lang="zh")
    assert "退出状态：退出码 1" in zh
    assert "退出状态：信号 9（SIGKILL）" in zh


@pytest.mark.parametrize(
    ("n_nodes", "error_ns", "text"),
    [
        (1, 0, "one clock: all ranks on one node"),
        (2, 0, "clocks agree within 0 ns"),
        (2, 35_000, "clocks agree within 35.0 us"),
    ],
)
def test_the_clock_of_one_node(n_nodes: int, error_ns: int, text: str) -> None:
    seen = replace(COVERAGE, clock_error_ns=error_ns)
    assert text in list(coverage_lines(seen, catalogue("en"), n_nodes))


def test_files_without_records_are_not_called_records() -> None:
    logs_alone = Coverage(ranks_expected=4, ranks_seen=3, ranks_missing=(2,))
    assert list(coverage_lines(logs_alone, catalogue("en"), 0)) == [
        "no records and no dumps; the other files tell of 3 of 4 ranks",
        "not a line is of rank 2",
    ]
    of_a_run = list(coverage_lines(logs_alone, catalogue("en"), 1))
    assert "3 of 4 ranks left records" in of_a_run


def test_no_clock_where_nobody_was_seen() -> None:
    nothing = Coverage(ranks_expected=0, ranks_seen=0)
    assert not any("clock" in line for line in coverage_lines(nothing, catalogue("en"), 0))


def test_a_hang_tells_the_last_complete_step() -> None:
    assert "  last complete step  5\n" in render_report(report(HANG))
    assert "last complete step" not in render_report(report(HANG, steps=()))


def test_no_table_of_ranks_without_steps_behind_it() -> None:
    rows = tuple(replace(row, n_steps=0) for row in report().ranks)
    assert "Ranks by delay" not in render_report(report(STRAGGLER, ranks=rows))


SCORES = (
    TemplateScore(template="ddp", version=1, priority=10, is_chosen=False, reason="forbidden_seen",
                  missing_symbols=("any@TP",)),
    TemplateScore(template="fsdp2", version=1, priority=20, is_chosen=False, reason="no_steps"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("lang", "texts"),
    [
        (
            "en",
            (
                "roles and ops seen: TP all_reduce (8)",
                "ddp: an op that it forbids was seen (any@TP)",
            ),
        ),
        ("zh", ("看到的通信角色与算子：TP all_reduce (8)", "ddp: 出现了它不允许的算子 (any@TP)")),
    ],
)
def test_without_steps_the_templates_tell_why(lang: str, texts: tuple[str, ...]) -> None:
    text = render_steps([], COVERAGE, seen="TP all_reduce (8)", scores=SCORES, lang=lang)
    assert [wanted for wanted in texts if wanted not in text] == []


def test_a_chinese_report_has_no_english_sentence() -> None:
    notes = [
        Message("launch.stopped"),
        Message("launch.boxes_removed", {"n": 1}),
        Message(
            "note.no_steps_because",
            {"reason": "broken.topology_not_met", "ranks": [0, 1], "after_ns": 9, "n_ops": 16},
        ),
        Message(
            "note.stack_rung", {"ranks": [1], "source": "proc", "reason": "stack.py_spy_denied"}
        ),
    ]
    evidence = (died(3, "exit code 1"), died(2, "signal 15 (SIGTERM)"))
    op = OpRef(comm_id=0, comm_label="DP dp#0", op="all_reduce", match_seq=3)
    verdicts = [
        replace(
            HANG, cause=cause, culprits=culprits, evidence=evidence, first_bad_op=op,
            chain=(ChainLink(ChainLevel.JOB, "4 ranks"), ChainLink(ChainLevel.PORT, "unknown")),
        )
        for cause in Cause for culprits in ((), (3,))
    ]  # fmt: skip
    for verdict in verdicts:
        text = render_report(report(verdict, notes=tuple(notes)), lang="zh", width=200)
        assert (
            re.findall(r"(?:\b[a-z]{2,} ){2,}[a-z]{2,}\b", text.replace("torchrun train.py", ""))
            == []
        )


@pytest.mark.parametrize(
    ("lang", "wanted"),
    [("en", "ranks 0-2 hang in many P2P calls made at once, which wait for rank 3"),
     ("zh", "在等 Rank 3")],
)  # fmt: skip
def test_a_hang_that_nobody_could_be_named_for_says_whom_it_waits_for(
    lang: str, wanted: str
) -> None:
    params = {"ranks": [0, 1, 2], "comm": "EP ep#0", "peers": [3], "age_ns": 9}
    pending = Evidence(kind="record", message=Message("evidence.pending", params))
    verdict = replace(HANG, cause=Cause.NO_VERDICT, culprits=(), evidence=(pending,))
    text = render_report(report(verdict), lang=lang)
    assert wanted in " ".join(text.split())
