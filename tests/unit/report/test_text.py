from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from comminsight.model.report import RankRow, RunReport, StepRow
from comminsight.model.verdict import Cause, Coverage, Evidence, Message, OpRef, Verdict
from comminsight.report.catalogue import catalogue
from comminsight.report.page import printable, wants_color
from comminsight.report.text import coverage_lines, render_report
from comminsight.report.verdict_text import op_phrase
from tests.unit.report.reports import HANG, STRAGGLER, rank_row, report

STRAGGLER_EN = """\
Rank 3 on node-b held the others up with slow local work, since step 2, and cost
each step 52.0 ms (31%).
COMPUTE_STRAGGLER, confidence high: its collectives start late though nothing
held it up; the wait begins there.

Run
  run        run-1
  directory  /data/run-1
  command    torchrun train.py
  ranks      4 of 4 left records
  nodes      2 (node-a, node-b)
  started    2027-01-15 08:00:00 UTC
  ended      exited, exit code 0 after 2 min 5 s
  numbering  raw: as most ranks counted

Steps (6 seen)
             step  time ms  window ms  gap ms  ranks  ops  complete  template
  first         0    114.0       90.0    24.0      4   33  yes       ddp
  before 2      0    114.0       90.0    24.0      4   33  yes       ddp
  from 2 on     3    166.0       90.0    24.0      4   33  yes       ddp
  slowest       2    166.0       90.0    24.0      4   33  yes       ddp
  last          5        -       90.0       -      4   33  yes       ddp
  each row is one step; before 2 and from 2 on it is the step of median length
  there

Culprit
  rank               3
  node               node-b
  place              dp3
  steps              2 to 5
  suffered           0-2
  cost per step      52.0 ms
  share of the step  31%

Causal chain
  role  DP
  rank  3  (origin of delay)
  port  unknown

Ranks by delay they began (4 of 4; * = culprit)
  rank  node    place  index  caused ms  origin ms  passed ms  waited ms
    *3  node-b  dp3     31.2       51.0       52.0        0.0        0.0
     0  node-a  dp0      0.4        0.0        0.0        0.0       51.0
     1  node-a  dp1      0.4        0.0        0.0        0.0       51.0
     2  node-b  dp2      0.4        0.0        0.0        0.0       51.0
  index: Straggler Index, 0 to 100. Means per step, in ms: caused: net wait of
  others; origin: delay that began here; passed: delay handed on; waited: wait
  for others

What this verdict has seen
  - 4 of 4 ranks left records
  - 12,345 records read, 3 lost
  - 3 records later than the safe window
  - 5 steps used, 1 left out
  - clocks agree within 35.0 us
"""

HANG_ZH = """\
Rank 3（node-b）缺席，一直没有进入通信域 DP dp#0 的第 41 次 all_reduce，Rank 0-2
卡在这里等待。
RANK_NOT_ENTERED，置信度中：没有迹象表明它的进程当时已经不在，但它没有走到其他成
员等待的这次通信。

任务
  任务      run-1
  目录      /data/run-1
  命令      torchrun train.py
  Rank      4 个中有 4 个留下记录
  节点      2 个（node-a, node-b）
  开始时间  2027-01-15 08:00:00 UTC
  结束      已退出，退出码 0，运行 2 min 5 s

Hang
  缺席 Rank  3
  节点       node-b
  并行位置   dp3
  算子       all_reduce #41
  通信域     DP dp#0
  数据量     25 MiB bfloat16
  等待中     0-2

证据
  - test.code (n=1)  [Rank 3, 第 40 次]
    Rank 3 原文：
      Thread 7 (idle): "MainThread"
          read (data.py:12)
"""


def test_a_straggler_in_english() -> None:
    assert render_report(report(STRAGGLER)) == STRAGGLER_EN


def test_a_hang_in_chinese() -> None:
    text = render_report(report(HANG, steps=()), lang="zh")
    assert text.startswith(HANG_ZH)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_a_sentence_without_holes(cause: Cause, lang: str) -> None:
    for verdict in (STRAGGLER, HANG):
        made = msgspec.structs.replace(verdict, cause=cause)
        first = render_report(report(made), lang=lang, width=400).splitlines()[0]
        assert "?" not in first
        assert first.endswith("。" if lang == "zh" else ".")


TRANSFER = OpRef(
    comm_id=0, comm_label="PP mesh_pp#8", op="recv", match_seq=33, peer=0, sender=3, receiver=7
)


@pytest.mark.parametrize(
    ("lang", "op", "phrase"),
    [
        ("en", TRANSFER, "send/recv #33 from rank 3 to rank 7 of PP mesh_pp#8"),
        ("zh", TRANSFER, "通信域 PP mesh_pp#8 中 Rank 3 到 Rank 7 的第 33 次 send/recv"),
        ("en", replace(TRANSFER, receiver=-1), "recv #33 with peer 0 of PP mesh_pp#8"),
        ("en", replace(TRANSFER, peer=-1, sender=-1, receiver=-1), "recv #33 of PP mesh_pp#8"),
        ("en", None, "a collective"),
    ],
)
def test_an_op_as_people_look_it_up(lang: str, op: OpRef | None, phrase: str) -> None:
    assert op_phrase(op, catalogue(lang)) == phrase


@pytest.mark.parametrize(
    ("cause", "label"),
    [
        (Cause.RANK_NOT_ENTERED, "absent"),
        (Cause.RANK_DEAD, "rank"),
        (Cause.SHAPE_MISMATCH, "rank"),
    ],
)
def test_only_ranks_that_did_not_come_are_absent(cause: Cause, label: str) -> None:
    text = render_report(report(replace(HANG, cause=cause)))
    block = text.partition("\nHang\n")[2]
    assert block.split()[:2] == [label, "3"]


@pytest.mark.parametrize(("clock", "is_shown"), [("raw", True), ("aligned", True), ("", False)])
def test_the_clock_is_shown(clock: str, is_shown: bool) -> None:
    facts = replace(report().facts, clock=clock)
    text = render_report(report(STRAGGLER, facts=facts))
    assert ("  clock " in text) == is_shown


def test_no_verdict_and_no_data_still_make_a_report() -> None:
    text = render_report(report(steps=(), ranks=()))
    assert text.startswith("Nothing was judged: no rule had enough to go on.\n")
    assert "What this verdict has seen" in text


def test_other_verdicts_follow_the_first_in_one_line_each() -> None:
    text = render_report(report(HANG, STRAGGLER), width=200)
    others = text.split("Also found\n")[1].splitlines()[0]
    assert others.startswith("  - Rank 3 on node-b held the others up")


def test_missing_and_next_name_each_message_once() -> None:
    again = Message("test.same", {"rank": 3})
    hang = msgspec.structs.replace(HANG, missing=(again,), next_actions=(again,))
    slow = msgspec.structs.replace(STRAGGLER, missing=(again,))
    text = render_report(report(hang, slow, notes=(Message("test.note"),)))
    tail = text[text.index("What is missing") :]
    assert tail == (
        "What is missing\n  - test.same (rank=3)\n\nWhat to do next\n  - test.same (rank=3)\n\n"
        "Notes\n  - test.note\n"
    )


def test_a_thousand_ranks_stay_under_a_screenful() -> None:
    ranks = tuple(rank_row(rank, 52 if rank == 611 else 0) for rank in range(1000))
    verdict = msgspec.structs.replace(
        STRAGGLER, culprits=(611,), victims=tuple(r for r in range(1000) if r != 611)
    )
    text = render_report(report(verdict, ranks=ranks))
    assert len(text.splitlines()) < 64
    assert "suffered           0-610,612-999" in text
    assert "*611  node-b  dp611" in text
    assert "990 more ranks: each began at most 0.0 ms, index at most 0.4" in text


def test_stacks_are_word_for_word_but_cannot_drive_the_terminal() -> None:
    wide = "x" * 300
    entry = Evidence(kind="stack", message=Message("m"), text=f"[bold]{wide}\n\x1b]0;t\x07\ttail")
    text = render_report(report(msgspec.structs.replace(HANG, evidence=(entry,))))
    assert f"      [bold]{wide}\n" in text
    assert "      \\x1b]0;t\\x07" in text
    assert printable("a\x00\u202eb\n") == "a\\x00\\u202eb\n"


def test_long_stacks_and_many_stacks_are_cut_with_a_note() -> None:
    entry = Evidence(kind="stack", message=Message("m"), text="line\n" * 70)
    text = render_report(report(msgspec.structs.replace(HANG, evidence=(entry,) * 10)))
    assert text.count("      line\n") == 3 * 60
    assert text.count("... 10 more lines in the JSON report") == 3
    assert "- 7 more stacks in the JSON report" in text
    assert "- 2 more in the JSON report" in text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 120])
def test_nothing_but_foreign_text_exceeds_the_width(lang: str, width: int) -> None:
    hosts = tuple(f"a-very-long-host-name-{n}.cluster.example.com" for n in range(9))
    rows = tuple(
        msgspec.structs.replace(rank_row(rank, 123_456), host=hosts[rank % 9], coords="tp1 pp3 dp7")
        for rank in range(2000, 2030)
    )
    facts = msgspec.structs.replace(report().facts, hosts=hosts, command=("word" * 30,) * 9)
    text = render_report(report(STRAGGLER, facts=facts, ranks=rows), lang=lang, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    header = next(line for line in text.splitlines() if ("waited ms" in line or "等待 ms" in line))
    assert header.rstrip() == header


def test_colour_only_when_asked_and_wanted() -> None:
    assert "\x1b[" in render_report(report(STRAGGLER), color=True)
    assert "\x1b[" not in render_report(report(STRAGGLER))
    terminal = io.StringIO()
    assert not wants_color(terminal, {})
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    assert wants_color(terminal, {"NO_COLOR": ""})
    assert not wants_color(terminal, {"NO_COLOR": "1"})
    assert not wants_color(terminal, {"TERM": "dumb"})


INTS = st.integers(-(2**70), 2**70)
NUMBERS = st.one_of(st.floats(), INTS)
TEXT = st.text(max_size=20)
PARAMS = st.dictionaries(TEXT, st.one_of(NUMBERS, TEXT, st.lists(INTS, max_size=3)), max_size=3)
MESSAGES = st.lists(st.builds(Message, TEXT, PARAMS), max_size=2).map(tuple)
RANKS = st.lists(INTS, max_size=5).map(tuple)
VERDICTS = st.builds(
    Verdict,
    rule=TEXT,
    cause=st.sampled_from(Cause),
    confidence=st.just(STRAGGLER.confidence),
    coverage=st.builds(
        Coverage, ranks_expected=INTS, ranks_seen=INTS, ranks_missing=RANKS, clock_error_ns=INTS,
        unseen_step_ratio=st.floats(), tally=st.dictionaries(TEXT, INTS, max_size=3),
    ),
    culprits=RANKS,
    victims=RANKS,
    first_step=INTS,
    last_step=INTS,
    measures=st.dictionaries(st.sampled_from(["step_cost_ns", "longest_wait_ns", "x"]), NUMBERS),
    missing=MESSAGES,
    next_actions=MESSAGES,
    evidence=st.lists(
        st.builds(Evidence, kind=TEXT, message=st.builds(Message, TEXT, PARAMS), text=TEXT),
        max_size=2,
    ).map(tuple),
)  # fmt: skip
STEPS = st.builds(
    StepRow, step=INTS, n_ranks=INTS, span_ns=INTS, period_ns=INTS, gap_ns=INTS, n_ops=INTS,
    is_complete=st.booleans(), template=TEXT,
)  # fmt: skip
RANK_ROWS = st.builds(
    RankRow, global_rank=INTS, host=TEXT, n_steps=INTS, straggler_index_pct=st.floats(),
    caused_wait_ns=INTS, origin_delay_ns=INTS, passed_on_delay_ns=INTS, waited_ns=INTS, coords=TEXT,
)  # fmt: skip
REPORTS = st.builds(
    report,
    steps=st.lists(STEPS, max_size=4).map(tuple),
    ranks=st.lists(RANK_ROWS, max_size=12).map(tuple),
    notes=MESSAGES,
    verdicts=st.lists(VERDICTS, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(REPORTS, st.sampled_from(["en", "zh"]), st.integers(0, 200), st.booleans())
def test_no_value_breaks_a_report(made: RunReport, lang: str, width: int, color: bool) -> None:
    assert render_report(made, lang=lang, width=width, color=color)


def test_the_steps_left_out_of_a_rank_are_listed() -> None:
    rows = tuple(replace(rank_row(rank), excluded_steps=(3, 4, 5, 9)) for rank in range(6))
    page = render_report(report(STRAGGLER, ranks=rows))
    assert "left out of the means of rank 0: steps 3-5,9" in page
    assert "2 more ranks with steps left out: see --json" in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("segment_frames_torn", "at least 3 lost"),
        ("segment_files_unreadable", "at least 3 lost"),
        ("capture_lost", ", 3 lost"),
    ],
)
def test_what_was_cut_held_nobody_knows_how_many_records(name: str, said: str) -> None:
    coverage = Coverage(
        ranks_expected=4, ranks_seen=4, records_read=10, records_lost=3, tally={name: 1}
    )
    assert said in list(coverage_lines(coverage, catalogue("en"), 1))[1]
