"""Hand-written communication is told with its share of the time, and accuses nobody."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.job import judge_job
from comminsight.model.activity import Activity
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.job_evidence import gather
from tests.builders.activities import comm, compute, in_steps, on_ranks
from tests.builders.kineto import write_traces

DISPATCH = "void deep_ep::internode::dispatch<8>()"
ON_TIME = (Cause.EXPOSED_COMM, Cause.NO_OVERLAP_BY_DEPENDENCY)
COMBINE = "nvshmemi_transfer_combine"


def hand_written(begin_us: float, for_us: float, name: str = DISPATCH) -> Activity:
    return comm(0, Op.UNKNOWN, begin_us, for_us, name=name, is_library=False, comm_label="")


def judged(*step: Activity, n_ranks: int = 4) -> tuple[Verdict, ...]:
    activities = on_ranks(range(n_ranks), in_steps(step, 6, 1000))
    return judge_job(JobEvidence(activities=tuple(activities)))


def dark(verdicts: Sequence[Verdict]) -> list[Any]:
    return [
        (one.message.params["names"], float(str(one.message.params["ratio"])))
        for verdict in verdicts
        for one in verdict.evidence
        if one.message.code == codes.DARK
    ]


@pytest.mark.parametrize(
    ("step", "names", "ratio"),
    [
        ([compute(0, 0, 700), hand_written(700, 200)], [DISPATCH], 0.2),
        ([compute(0, 0, 1000), hand_written(100, 500)], [DISPATCH], 0.5),  # hidden, and not seen
        (
            [compute(0, 0, 400), hand_written(400, 100), hand_written(600, 100, COMBINE)],
            [COMBINE, DISPATCH], 2 / 7,
        ),
        # beside a library that tells of its own part
        (
            [compute(0, 0, 400), comm(0, Op.ALL_REDUCE, 400, 300), hand_written(700, 100)],
            [DISPATCH], 0.1,
        ),
        # two at once are one time
        ([compute(0, 0, 990), hand_written(0, 200), hand_written(100, 100, COMBINE)],
         [COMBINE, DISPATCH], 0.2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_ranks", [2, 8])
def test_it_is_told_with_its_kernels_and_its_share(
    step: list[Activity], names: list[str], ratio: float, n_ranks: int
) -> None:
    verdicts = judged(*step, n_ranks=n_ranks)
    assert dark(verdicts) == [(names, pytest.approx(ratio, abs=0.03))] * len(verdicts)
    for verdict in verdicts:
        assert codes.MISSING_NAMES in {one.code for one in verdict.missing}
        assert verdict.culprits == ()
        assert verdict.cause in {Cause.NO_VERDICT, *ON_TIME}


@pytest.mark.parametrize(
    "step",
    [
        [compute(0, 0, 900), hand_written(900, 20)],  # too little to hide anything
        [compute(0, 0, 700), comm(0, Op.ALL_TO_ALL, 700, 300)],  # a library tells of it
        [compute(0, 0, 1000)],
        [compute(0, 0, 700), compute(0, 700, 300)],
    ],
)
def test_it_is_not_told_of_what_is_no_dark_communication(step: list[Activity]) -> None:
    assert dark(judged(*step)) == []


@pytest.mark.parametrize("name", [DISPATCH, "nvshmem_putmem_nbi_block"])
def test_it_is_found_in_a_trace_by_the_names_of_its_kernels(name: str, tmp_path: Path) -> None:
    step = [compute(0, 0, 700), hand_written(700, 300, name)]
    folder = write_traces(tmp_path, on_ranks((0, 1), in_steps(step, 4, 1000)), 2)
    assert dark(judge_job(gather([folder]).job)[:1]) == [([name], pytest.approx(0.3, abs=0.05))]
