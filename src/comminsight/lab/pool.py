"""Many short jobs in one go: torch is imported once, every rank of every episode is a fork of it.

An episode is a job of ``ranks`` processes with a run directory of its own: ``FOLDER/NAME`` is laid
out like the output of ``comminsight run`` (records in ``inspector_logs``, black boxes in
``blackbox``, manifest in ``metadata``), its truth is ``FOLDER/NAME/truth.jsonl``. Forking keeps
episodes apart: each rank has its own process, recorder and fate, and may hang or be killed. That is
why episodes are not successive process groups of the same processes, which would share one
recording.

Whether anything is recorded is decided by the environment of this process (``comminsight run`` or
``comminsight_inject.environment``); folder and run id of the recording are set per episode.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from comminsight.lab import job
from comminsight.lab.options import parse
from comminsight.model.manifest import LaunchManifest
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.manifest import manifest_path, write_manifest

POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Episode:
    """One job: its name (= folder and run id), the arguments of ``lab.job``, its ranks."""

    name: str
    arguments: tuple[str, ...]
    ranks: int = 8
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """How it went. ``exit_codes`` by rank: negative = ended by that signal (-9 after a timeout)."""

    name: str
    run: str
    truth: str
    exit_codes: tuple[int, ...]
    begin_ns: int
    end_ns: int
    is_timed_out: bool = False


def run_pool(
    episodes: Sequence[Episode], folder: Path, env: Mapping[str, str]
) -> list[EpisodeResult]:
    """Run the episodes one after the other in a new process with the environment ``env``.

    Raises subprocess.CalledProcessError when the pool itself fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "plan.json"
    plan.write_text(json.dumps([asdict(episode) for episode in episodes]))
    command = [sys.executable, "-m", "comminsight.lab.pool", "--plan", str(plan), str(folder)]
    subprocess.run(command, env=dict(env), check=True)
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [_result(json.loads(line)) for line in lines]


def _result(fields: dict[str, object]) -> EpisodeResult:
    codes = fields.pop("exit_codes")
    assert isinstance(codes, list)  # noqa: S101 - written by this module
    return EpisodeResult(exit_codes=tuple(codes), **fields)  # type: ignore[arg-type]


def run_episode(episode: Episode, folder: Path) -> EpisodeResult:
    """Fork the ranks, wait for them, write the manifest."""
    paths = RunPaths(folder / episode.name)
    paths.create()
    truth = paths.root / "truth.jsonl"
    begin_ns, begin_real_ns = time.monotonic_ns(), time.time_ns()
    port = free_port()
    pids = [start_rank(episode, paths, truth, rank, port) for rank in range(episode.ranks)]
    codes, is_timed_out = wait_for(pids, episode.timeout_s)
    manifest = LaunchManifest(
        run_id=episode.name, host=platform.node(), command=("lab.job", *episode.arguments),
        started_real_ns=begin_real_ns, started_mono_ns=begin_ns, ended_real_ns=time.time_ns(),
        exit_code=max(abs(code) for code in codes), spool=str(paths.segments),
    )  # fmt: skip
    write_manifest(manifest_path(paths, manifest.host, os.getpid()), manifest)
    return EpisodeResult(
        episode.name, str(paths.root), str(truth), codes, begin_ns, time.monotonic_ns(),
        is_timed_out,
    )  # fmt: skip


def start_rank(episode: Episode, paths: RunPaths, truth: Path, rank: int, port: int) -> int:
    """Pid of the forked rank. In the child this never returns: it leaves as a program does."""
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(
        place_of(rank, episode.ranks, port),
        COMMINSIGHT_RUN_ID=episode.name, COMMINSIGHT_SPOOL=str(paths.segments.resolve()),
        COMMINSIGHT_BOX_DIR=str(paths.boxes.resolve()),
    )  # fmt: skip
    job.run_job(parse((*episode.arguments, "--marks", str(truth)), tuple(job.JOBS)))
    sys.exit(0)


def place_of(rank: int, n_ranks: int, port: int) -> dict[str, str]:
    """What a launcher tells a rank of its place, all ranks being on this node."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks),
        "LOCAL_WORLD_SIZE": str(n_ranks), "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def wait_for(pids: Sequence[int], timeout_s: float) -> tuple[tuple[int, ...], bool]:
    """(exit code per pid, whether the rest had to be killed after ``timeout_s``)."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + timeout_s
    is_timed_out = False
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline and not is_timed_out:
            is_timed_out = True
            for pid in pids:
                if pid not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    return tuple(codes[pid] for pid in pids), is_timed_out


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(argv: Sequence[str]) -> int:
    """0 when every episode was run, however it ended; results go to ``FOLDER/results.jsonl``."""
    parser = argparse.ArgumentParser(prog="python -m comminsight.lab.pool", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="JSON list of episodes")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    results = options.folder / "results.jsonl"
    results.unlink(missing_ok=True)
    gc.freeze()  # no rank looks through torch's objects when it ends: a second of CPU for each
    for fields in json.loads(options.plan.read_text()):
        fields["arguments"] = tuple(fields["arguments"])
        result = run_episode(Episode(**fields), options.folder)
        with results.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
