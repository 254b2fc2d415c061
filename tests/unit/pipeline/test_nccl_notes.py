from dataclasses import replace

from comminsight.model.ops import EndReason, NoticeReason
from comminsight.model.verdict import Message
from comminsight.pipeline.nccl_notes import TOLD_COUNTERS, nccl_notes
from comminsight.report.catalogue import catalogue
from tests.builders import allreduce, fold, notice, ops, unseen_end
from tests.unit.pipeline.test_ends import session


def test_what_the_nccl_door_could_not_see_is_noted() -> None:
    rows = ops(
        allreduce(1, 1.0),
        unseen_end(allreduce(2, 2.0), EndReason.NO_TASK),
        unseen_end(fold(3, 3.0, 20, op_seq=3), EndReason.NO_TASK),
        unseen_end(allreduce(4, 4.0), 99),  # of a newer version
        notice(5, 5.0, NoticeReason.OVERHEAD_GUARD),
    )
    one = replace(
        session(1), records=rows,
        nccl_counters={"captured_calls": 3, "stale_events": 7, "callback_ns": 8},
    )  # fmt: skip
    two = replace(session(2), nccl_counters={"captured_calls": 4, "foreign_events": 1})
    assert nccl_notes([one, two]) == (
        Message("note.unseen_ends", {"n": 21, "reason": "end_reason.no_task"}),
        Message("note.unseen_ends", {"n": 1, "reason": "end_reason.unknown"}),
        Message("note.nccl_counter", {"n": 7, "what": "counter.captured_calls"}),
        Message("note.nccl_counter", {"n": 1, "what": "counter.foreign_events"}),
        Message("note.overhead_guard", {"ranks": [1]}),
    )
    assert nccl_notes([session(0)]) == ()


def test_every_reason_and_counter_has_its_words() -> None:
    for lang in ("en", "zh"):
        known = catalogue(lang).templates
        assert {f"end_reason.{reason.name.lower()}" for reason in EndReason} <= known.keys()
        assert {f"counter.{name}" for name in TOLD_COUNTERS} <= known.keys()
