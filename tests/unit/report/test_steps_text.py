from __future__ import annotations

from msgspec.structs import replace

from comminsight.model.verdict import Message
from comminsight.model.views import UNFINISHED_NS, OpRow, PhaseRow, StepOps, TemplateScore
from comminsight.report.steps_text import (
    render_ops,
    render_step_changes,
    render_steps,
    render_template_scores,
)
from tests.unit.report.reports import COVERAGE, MS, START_NS, step_row


def op_row(op_seq: int, **changes: object) -> OpRow:
    given: dict[str, object] = {
        "op": "all_reduce",
        "role": "DP",
        "comm_label": "DP dp#0",
        "match_seq": op_seq,
        "op_seq": op_seq,
        "size_bytes": 25 << 20,
        "start_offset_ns": op_seq * 10 * MS,
        "duration_ns": 4 * MS,
    }
    return OpRow(**{**given, **changes})  # type: ignore[arg-type]


def view(*ops: OpRow) -> StepOps:
    return StepOps(
        schema_version="1.0.0",
        run_id="run-1",
        global_rank=2,
        host="node-b",
        step=7,
        template="ddp",
        start_real_ns=START_NS,
        span_ns=90 * MS,
        period_ns=0,
        is_complete=True,
        ops=ops,
    )


def test_steps_with_their_coverage() -> None:
    text = render_steps([step_row(0, 114), step_row(1, 166), step_row(2, 0)], COVERAGE, run="run-1")
    assert (
        text
        == """\
Steps of run-1
  step  time ms  window ms  gap ms  ranks  ops  complete  template
     0    114.0       90.0    24.0      4   33  yes       ddp
     1    166.0       90.0    24.0      4   33  no        ddp
     2        -       90.0       -      4   33  yes       ddp

Seen
  - 4 of 4 ranks left records
  - 12,345 records read, 3 lost
  - 3 records later than the safe window
  - 5 steps used, 1 left out
  - clocks agree within 35.0 us
"""
    )


def test_phases_and_gaps_have_columns_where_there_are_any() -> None:
    phases = {"forward": 30 * MS, "grad_sync": 12 * MS}
    rows = [
        replace(step_row(0, 114), phase_ns=phases, n_microbatches=8),
        replace(step_row(1, 166), phase_ns={"backward": 41 * MS}, n_lost=2, n_late=1),
        step_row(2, 0),
    ]
    text = render_steps(rows, COVERAGE, run="run-1")
    assert text.startswith(
        """\
Steps of run-1
  step  time ms  window ms  gap ms  ranks  ops  complete  lost  late  template
     0    114.0       90.0    24.0      4   33  yes          0     0  ddp
     1    166.0       90.0    24.0      4   33  no           2     1  ddp
     2        -       90.0       -      4   33  yes          0     0  ddp

Time per phase in ms
  step  forward  grad sync  backward  microbatches
     0     30.0       12.0         -             8
     1        -          -      41.0             -
"""
    )


def test_changes_name_the_step_and_the_ranks() -> None:
    changes = [
        Message("change.template", {
            "step": 3, "ranks": [0, 1, 2], "before": "ddp 1.1", "now": "fsdp2 1.2",
        }),
        Message("change.ranks_left", {"step": 4, "ranks": [2]}),
        Message("change.recording", {
            "step": 5, "ranks": [0], "what": "recording.off", "mask": "0x6", "size_bytes": 4096,
        }),
    ]  # fmt: skip
    assert (
        render_step_changes(changes)
        == """\

What changed
  - step 3: ranks 0-2 changed from template ddp 1.1 to fsdp2 1.2
  - step 4: rank 2 left
  - step 5: recording on rank 0 was set: off, op mask 0x6, at least 4 KiB
"""
    )
    assert render_step_changes([]) == ""


def test_no_steps_is_said() -> None:
    assert "- no step was found\n" in render_steps([], COVERAGE)


def test_ops_of_a_rank_in_a_step() -> None:
    text = render_ops(
        view(
            op_row(1, waited_ns=3 * MS, waited_for=3),
            op_row(2, op="send", peer=1, comm_label="PP pp#1", size_bytes=512),
            op_row(3, duration_ns=UNFINISHED_NS, state="overdue"),
        )
    )
    assert (
        text
        == """\
Rank 2, step 7: 3 ops in 90.0 ms
  run        run-1
  node       node-b
  template   ddp
  numbering  raw: as most ranks counted
  started    2027-01-15 08:00:00 UTC

  op          comm     match    size  start ms  took ms  wait ms  for  state
  all_reduce  DP dp#0      1  25 MiB      10.0      4.0      3.0    3  done
  send 1      PP pp#1      2   512 B      20.0      4.0        -    -  done
  all_reduce  DP dp#0      3  25 MiB      30.0        -        -    -  overdue
  start counts from the start of the step; wait is the time until the last
  member entered
"""
    )


def test_phases_of_a_step_name_their_microbatch() -> None:
    given = view(op_row(1))
    rows = (
        PhaseRow(kind="forward", start_offset_ns=0, duration_ns=30 * MS, n_ops=12,
                 microbatch=2, n_microbatches=8),
        PhaseRow(kind="bubble", start_offset_ns=30 * MS, duration_ns=5 * MS, n_ops=1),
        PhaseRow(kind="backward", start_offset_ns=35 * MS, duration_ns=50 * MS, microbatch=0),
    )  # fmt: skip
    text = render_ops(replace(given, phases=rows))
    assert (
        text.removeprefix(render_ops(given))
        == """\

Phases
  phase     microbatch  start ms  took ms  ops
  forward   3 of 8           0.0     30.0   12
  bubble    -               30.0      5.0    1
  backward  1               35.0     50.0    -
"""
    )
    assert "第 3/8 个" in render_ops(replace(given, phases=rows), lang="zh")


def test_a_wide_terminal_shows_the_program_order_too() -> None:
    header = next(
        line for line in render_ops(view(op_row(1)), width=120).splitlines() if "op_" in line
    )
    assert header.split()[-1] == "op_seq"
    assert "- no op of this rank in this step\n" in render_ops(view())


def test_template_scores_say_why_not() -> None:
    scores = [
        TemplateScore(
            template="ddp", version=2, priority=10, is_chosen=True, n_open=40, n_anchor=40,
            n_close=39, n_steps=40, covered_ops_ratio=0.98,
        ),
        TemplateScore(
            template="fsdp2", version=1, priority=20, is_chosen=False,
            reason="test.requires", missing_symbols=("DP_SHARD.all_gather",),
        ),
    ]  # fmt: skip
    assert (
        render_template_scores(scores)
        == """\
Templates tried
  template          version  priority  open  anchor  close  steps  covered
  ddp       chosen        2        10    40      40     39     40      98%
  fsdp2                   1        20     0       0      0      0       0%

  - fsdp2: test.requires (DP_SHARD.all_gather)
"""
    )
    assert "没有尝试任何模板" in render_template_scores([], lang="zh")
