"""The job of ``make gpu``, played over gloo: what it writes down is what a recorder sees of it.

Its calls, their order and the convention of sizes are those of any backend; channels and GPU
times are not, and are left to the machine with a GPU.
"""

import json
import sys

import pytest

from comminsight.lab import nccl_compare
from comminsight.lab.nccl_compare import call_from, faults
from comminsight.run import open_run
from tests.integration.launching import recorded
from tests.integration.recording import skip_without_real_jobs

PROGRAM = """
import json, os, sys, torch
import torch.distributed as dist
from comminsight.lab import nccl_job as job

def on_cpu(call, whole, part):
    call(whole, part)
    return 1

job.timed_ns, job.SIZES, job.ROUNDS, job.BURST_OPS = on_cpu, (64, 4096), 2, 3
torch.cuda.synchronize = lambda: None
torch.set_num_threads(1)
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
cpu = torch.device("cpu")
with open(os.path.join(sys.argv[1], f"calls-{dist.get_rank()}.jsonl"), "w") as log:
    for entry in [*job.rounds(cpu), job.burst(cpu)]:
        log.write(json.dumps(entry) + "\\n")
dist.destroy_process_group()
"""
LAUNCHER = """
import os, subprocess, sys
from comminsight.lab.pool import free_port
place = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
ranks = [
    subprocess.Popen([sys.executable, *sys.argv[1:]],
                     env={**os.environ, **place, "RANK": rank, "LOCAL_RANK": rank})
    for rank in "01"
]
sys.exit(max(rank.wait() for rank in ranks))
"""
OF_ANY_BACKEND = ("recorded as", "size ", "records", "state ")


@pytest.mark.real
def test_its_log_is_what_a_recorder_sees(tmp_path, monkeypatch):
    skip_without_real_jobs()
    monkeypatch.setattr(nccl_compare, "MAX_FAULTS", 1000)  # every call of gloo has some
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    words = [str(tmp_path / name) for name in ("launcher.py", "program.py")]
    code, _, err = recorded(tmp_path / "run", sys.executable, *words, str(tmp_path))
    assert code == 0, err.decode()
    sessions = open_run(tmp_path / "run").sessions
    assert [s.identity.global_rank for s in sessions] == [0, 1]
    for session in sessions:
        log = (tmp_path / f"calls-{session.identity.global_rank}.jsonl").read_text()
        calls = [call_from(json.loads(line)) for line in log.splitlines()]
        assert sum(len(call.ops) for call in calls) == 2 * 2 * 6 + 3
        found = faults(calls, session.records)
        assert found  # gloo has no channels: that the comparison looks at all is seen by this
        assert [text for text in found if any(sign in text for sign in OF_ANY_BACKEND)] == []
