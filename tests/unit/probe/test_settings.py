"""Settings that the recorder takes, and those that it would pass over."""

from __future__ import annotations

import pytest

from comminsight.probe.settings import Unfit, unfit_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COMMINSIGHT_OVERDUE_S", "1"),
        ("COMMINSIGHT_OVERDUE_S", ""),
        ("COMMINSIGHT_OVERDUE_S", "6e1"),
        ("COMMINSIGHT_EVENT_MASK", "0xff"),
        ("COMMINSIGHT_NCCL_MASK", "deep"),
        ("COMMINSIGHT_NCCL_MASK", "0x2f"),
        ("COMMINSIGHT_NCCL_MASK", "4095"),
        ("COMMINSIGHT_RUN_ID", "job-1:2@x"),
        ("SOMETHING_ELSE", "abc"),
    ],
)
def test_what_the_recorder_takes(name: str, value: str) -> None:
    assert unfit_settings({name: value}) == ()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("COMMINSIGHT_OVERDUE_S", "abc", "number"),
        ("COMMINSIGHT_OVERDUE_S", "0.01", "number"),
        ("COMMINSIGHT_OVERDUE_S", "nan", "number"),
        ("COMMINSIGHT_OVERDUE_S", "60s", "number"),
        ("COMMINSIGHT_SEGMENT_MB", "1_0", "number"),
        ("COMMINSIGHT_FLUSH_MS", "-1", "number"),
        ("COMMINSIGHT_NCCL_MASK", "garbage", "mask"),
        ("COMMINSIGHT_NCCL_MASK", "-1", "mask"),
        ("COMMINSIGHT_NCCL_MASK", "1.5", "mask"),
        ("COMMINSIGHT_RUN_ID", "a/b", "run_id"),
        ("COMMINSIGHT_RUN_ID", "..", "run_id"),
        ("COMMINSIGHT_RUN_ID", "x" * 129, "run_id"),
    ],
)
def test_what_it_would_pass_over(name: str, value: str, kind: str) -> None:
    (found,) = unfit_settings({name: value})
    assert (found.name, found.value, found.kind) == (name, value, kind)


def test_all_of_them_by_name() -> None:
    given = {"COMMINSIGHT_RUN_ID": "/", "COMMINSIGHT_FLUSH_MS": "x"}
    flush = Unfit("COMMINSIGHT_FLUSH_MS", "x", "number", 1, 10_000)
    assert unfit_settings(given) == (flush, Unfit("COMMINSIGHT_RUN_ID", "/", "run_id"))
