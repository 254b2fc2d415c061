from __future__ import annotations

from msgspec.structs import replace

from comminsight.model.pairs_view import PairPart, PairRow, RankPairs
from comminsight.report.pairs_text import render_pairs

MS = 1_000_000


def part(op: str, wait_ms: int) -> PairPart:
    return PairPart(op=op, role="DP", comm_label="DP dp#0", wait_ns=wait_ms * MS)


VIEW = RankPairs(
    schema_version="1.0.0", run_id="run-1", global_rank=2, host="node-b", step=7,
    step_view="raw", n_steps=1, n_incomplete=0, clock_error_ns=30_000,
    culprits=(
        PairRow(
            global_rank=5, host="node-c", wait_ns=48 * MS, n_steps=1,
            parts=tuple(part(op, ms) for op, ms in (
                ("all_reduce", 40), ("broadcast", 9), ("recv", 3), ("barrier", 1)
            )),
        ),
    ),
    n_culprits=12,
)  # fmt: skip


def test_a_partner_with_its_largest_parts() -> None:
    text = render_pairs(VIEW, width=100)
    assert (
        text
        == """\
Rank 2, step 7: who waited for whom
  run        run-1
  node       node-b
  numbering  raw: as most ranks counted

Made rank 2 wait
  rank  node    wait ms  steps  comm     op          in op ms
     5  node-c     48.0      1  DP dp#0  all_reduce      40.0
                                DP dp#0  broadcast        9.0
                                DP dp#0  recv             3.0
  and 11 more, for less

Waited for rank 2
  - nobody

  Waits of a pair are united within a step, and what one of the two waited for the other is taken
  off what the other waited for it. The times by op are not: they may add up to more.
  - clocks of different nodes are known to 30.0 us: shorter waits between nodes are not certain
"""
    )


def test_where_nothing_could_be_looked_at_nobody_is_not_said() -> None:
    bare = replace(VIEW, step=-1, n_steps=0, n_incomplete=2, culprits=(), n_culprits=0)
    text = render_pairs(bare, lang="en")
    assert "over 0 steps" in text
    assert text.count("- not known") == 2
    assert "nobody" not in text
    assert "2 steps of rank 2 left out" in text
    assert "未知" in render_pairs(bare, lang="zh")
