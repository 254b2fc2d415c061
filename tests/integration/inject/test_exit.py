"""Processes of their own: exit with ops in flight, and a recorder that is switched off."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from comminsight.errors import InputError
from comminsight.format.segment import read_segment
from comminsight.launch.environment import native_library
from comminsight.model.ops import OpState
from comminsight_inject import environment

pytestmark = pytest.mark.real
SOURCES = Path(__file__).resolve().parents[3] / "src"

RANK = """
import os, sys, time
import torch, torch.distributed as dist
from comminsight_inject import callbacks
callbacks.CLOSE_WAIT_S = 0.3
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if os.environ["RANK"] == "1":
    time.sleep(float(sys.argv[1]))
    if sys.argv[2] == "leaves":
        os._exit(0)
works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(4)]
if os.environ["RANK"] == "1":
    [work.wait() for work in works]
sys.exit(0)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install torch==2.13.0")
    try:
        library = str(native_library())
    except InputError as error:
        pytest.skip(f"{error}; {error.next_step}")
    base = {**os.environ, "PYTHONPATH": str(SOURCES), "GLOO_SOCKET_IFNAME": "lo"}
    return environment(library, str(tmp_path_factory.mktemp("spool")), "exit", base)


@pytest.mark.parametrize("how", ["leaves", "joins"])
def test_ops_still_in_flight_when_the_patience_ends_are_cut_off(env, tmp_path, how):
    """The partner comes, or dies, while the interpreter of rank 0 is going."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = []
    for rank in range(2):
        mine = {**env, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        mine["COMMINSIGHT_BOX_DIR"] = mine["COMMINSIGHT_SPOOL"] = str(tmp_path)
        command = [sys.executable, "-W", "ignore", "-c", RANK, "3", how]
        ranks.append(subprocess.Popen(command, env=mine, stderr=subprocess.PIPE, text=True))
    before = time.monotonic()
    codes = [rank.wait(timeout=90) for rank in ranks]
    errors = [rank.stderr.read() for rank in ranks]
    assert codes == [0, 0], errors
    assert time.monotonic() - before < 60
    segments = [read_segment(path) for path in tmp_path.rglob("*.ciseg*")]
    (mine,) = [s for s in segments if s.identity.global_rank == 0]
    ops = mine.records[np.isin(mine.records["kind"], (1, 2)) & (mine.records["state"] > 2)]
    assert ops["state"].tolist() == [OpState.DONE] + 4 * [OpState.ABORTED]
    assert mine.losses.sum() == 0
    for rank in ranks:
        rank.stderr.close()


OPS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("comminsight_inject.c10d_kernels" in sys.modules, hasattr(dist.Work.wait, "__wrapped__"))
"""


@pytest.mark.parametrize("is_off", [False, True])
def test_a_recorder_that_is_off_leaves_the_ops_alone(env, tmp_path, is_off):
    switch = tmp_path / "disable"
    if is_off:
        switch.touch()
    mine = {
        **env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "1",
        "RANK": "0", "LOCAL_RANK": "0", "COMMINSIGHT_BOX_DIR": str(tmp_path),
        "COMMINSIGHT_DISABLE_FILE": str(switch),
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", OPS]
    out = subprocess.run(command, env=mine, check=True, capture_output=True, text=True).stdout
    assert out.split() == [str(not is_off)] * 2
