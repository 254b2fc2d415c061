"""Real jobs, run once for all tests here: with recording and, for comparison, without.

torch is imported once per pool; the ranks of an episode are forks of it.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.launch.environment import native_library
from comminsight_inject import environment
from tests.integration.inject.episodes import BARE, RECORDED, LabRuns

SOURCES = Path(__file__).resolve().parents[3] / "src"


@pytest.fixture(scope="session")
def lab_runs(tmp_path_factory):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install torch==2.13.0")
    try:
        library = str(native_library())
    except InputError as error:
        pytest.skip(f"{error}; {error.next_step}")
    from comminsight.lab.pool import run_pool

    folder = tmp_path_factory.mktemp("lab")
    base = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": "ignore"}
    recorded = run_pool(RECORDED, folder / "recorded", environment(library, "", "", base))
    without_library = environment("/nonexistent.so", "", "", base)
    bare = run_pool(BARE, folder / "bare", base)
    blind = run_pool(BARE[:1], folder / "blind", without_library)
    return LabRuns(*({r.name: r for r in results} for results in (recorded, bare, blind)))
