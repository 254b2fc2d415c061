"""A rebuild on a Ray cluster of two nodes on this machine, of which one worker is killed.

    python -m tests.integration.scale_out_program RUN MARKERS

Prints one JSON object: the node of every task, errors, and how many sessions were rebuilt.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from comminsight.pipeline.executor import Err
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.ray_executor import RayExecutor
from comminsight.pipeline.rebuild_run import rebuild_run
from comminsight.pipeline.rebuild_tasks import Rebuilt, SegmentsTask, rebuild_segments
from comminsight.pipeline.session_steps import SessionStepper

NODE_BYTES = 80 << 20
N_NODES = 2
PATIENCE_S = 60.0


def dying_once(task: SegmentsTask, markers: str) -> tuple[Rebuilt, ...]:
    """The task; the first attempt on every third session is killed when its steps are written."""
    marker = Path(markers) / Path(task.folder).name
    is_first = not marker.exists()
    marker.write_text("")
    if is_first and int(Path(task.folder).name.split("-")[1]) % 3 == 0:
        SessionStepper.finish = kill_after(SessionStepper.finish)  # type: ignore[method-assign]
    return rebuild_segments(task)


def meet(node: str, markers: str) -> None:
    """Come back when tasks have begun on both nodes: short ones would all fit on the first."""
    (Path(markers) / f"node-{node}").touch()
    give_up_s = time.monotonic() + PATIENCE_S
    while len(list(Path(markers).glob("node-*"))) < N_NODES and time.monotonic() < give_up_s:
        time.sleep(0.02)


def kill_after(method: Callable[..., list[object]]) -> Callable[..., list[object]]:
    """The method, and the end of its process behind it."""

    def killed(self: SessionStepper) -> list[object]:
        method(self)
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    return killed


def main(run: str, markers: str) -> None:
    """Rebuild twice: once task by task with a dying worker, once as the command does."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": NODE_BYTES,
            "include_dashboard": False,
        },
    )
    cluster.add_node(num_cpus=1, object_store_memory=NODE_BYTES)
    cluster.wait_for_nodes()
    executor = RayExecutor(address=cluster.address)
    paths = run_paths(run)
    tasks = [
        SegmentsTask(str(folder), str(paths.steps)) for folder in sorted(paths.segments.iterdir())
    ]

    def placed(task: SegmentsTask) -> tuple[str, int]:
        node = ray.get_runtime_context().get_node_id()
        meet(node, markers)
        (rebuilt,) = dying_once(task, markers)
        return node, rebuilt.n_records

    results = list(executor.map_unordered(placed, tasks))
    errors = [result.message for result in results if isinstance(result, Err)]
    nodes = [result.value[0] for result in results if not isinstance(result, Err)]
    again = rebuild_run(paths, executor)
    executor.close()
    cluster.shutdown()
    print(json.dumps({"nodes": nodes, "errors": errors, "n_sessions": len(again.sessions)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
