"""Every kind of fault of the lab once, planted in a real gloo job, and ten healthy jobs.

``make score`` runs ten seeds of each kind and fifty healthy jobs (tools/score_lab.py).
"""

import pytest

from comminsight.lab.cases import FAULTS, SILENT, draw_case
from comminsight.lab.score import RECORDED, open_lab, run_cases, told
from comminsight.lab.scoring import Mark
from tests.integration.recording import pool_environment, skip_without_real_jobs

SEED = 1
N_HEALTHY = 10
TIMED = {"late_rank", "random_late_rank"}  # on a machine that is busy their delays may drown

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    skip_without_real_jobs()
    folder = tmp_path_factory.mktemp("lab")
    cases = [draw_case(kind, SEED) for kind in [*FAULTS, *SILENT]]
    cases += [draw_case("healthy", seed) for seed in range(SEED + 1, SEED + N_HEALTHY)]
    with open_lab(folder, pool_environment(folder)) as lab:
        found = run_cases(lab, cases)
    print(told(found))
    return found


def test_nobody_is_accused_wrongly(outcomes):
    assert [one for one in outcomes if one.mark is Mark.WRONG] == []


def test_what_was_planted_is_named(outcomes):
    recorded = [one for one in outcomes if one.source == RECORDED]
    assert {one.case.kind for one in recorded} == {*FAULTS, *SILENT}
    missed = [one for one in recorded if one.mark is not Mark.RIGHT]
    assert [one for one in missed if one.case.kind not in TIMED] == []
    assert all(one.mark is Mark.ABSTAINED for one in missed)


def test_dumps_name_what_they_can_tell(outcomes):
    """gloo keeps no trace of sends and receives, and a rank in no call may be in one."""
    kinds = {one.case.kind for one in outcomes if (one.source, one.mark) == ("dumps", Mark.RIGHT)}
    assert kinds >= {"missing_collective", "order_of_groups"}
