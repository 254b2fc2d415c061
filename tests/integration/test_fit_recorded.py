"""``comminsight fit`` of a real job: gloo ranks that reduce tensors of several sizes."""

import json
import sys

import pytest

from comminsight.model.ops import Op
from tests.builders.json_schema import violations
from tests.integration.launching import REPO, recorded, verb
from tests.integration.recording import skip_without_real_jobs

pytestmark = [pytest.mark.real, pytest.mark.slow]
SCHEMA = json.loads((REPO / "docs" / "schema" / "fit.json").read_text())
SIZES = [4 << k for k in range(10, 23, 3)]
PROGRAM = f"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(14):
    for size in {SIZES}:
        dist.all_reduce(torch.ones(size // 4))
    dist.barrier()
dist.destroy_process_group()
"""


def test_startup_and_rate_of_a_recorded_run(tmp_path):
    skip_without_real_jobs()
    program, run = tmp_path / "job.py", tmp_path / "run"
    program.write_text(PROGRAM)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    code, _, err = recorded(run, *torchrun, str(program))
    assert code == 0, err.decode()
    done = verb("fit", run, "--json")
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert violations(told, SCHEMA) == []
    found = next(one for one in told["fits"] if one["op"] == Op.ALL_REDUCE)
    assert (found["tier"], found["n_ranks"], found["no_fit"]) == ("node", 2, None)
    assert (found["smallest_bytes"], found["largest_bytes"]) == (SIZES[0], SIZES[-1])
    assert 0 < found["rate_gbs"] < 1000  # one machine's memory
    assert found["startup_ns"] < 1e9
    against_itself = json.loads(verb("fit", run, run, "--json").stdout)
    assert against_itself["drifts"] == []
