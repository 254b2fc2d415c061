"""``make gpu``: a real NCCL job on GPUs under the plugin, held against what the job did.

Where there is no GPU, or no torch with NCCL, one line says so and the exit code is 0. Otherwise the
job runs in turn without and with the plugin; the records, NCCL's own log and the times are judged,
and ``build/gpu/result.json`` and ``result.md`` are written. Exit code 1: something did not hold.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from comminsight.errors import CommInsightError, InputError
from comminsight.lab.nccl_compare import Call, Cost, Plan, call_from, costs, faults, plan
from comminsight.launch.environment import native_library
from comminsight.launch.own_launcher import OwnLauncher, assignments
from comminsight.run import open_run

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "gpu"
ROUNDS = 3
JOB_DEADLINE_S = 90.0
SURVEY_DEADLINE_S = 60.0
JOB = "comminsight.lab.nccl_job"
BOXES = "COMMINSIGHT_BOX_DIR"  # the job must put its black boxes where they are looked for
LOADED = re.compile(r"PROFILER/Plugin: Loaded (\S+) \((v\d+)\)")


@dataclass(slots=True)
class Result:
    """What came out; it holds when there are no faults."""

    machine: dict[str, Any]
    plan: Plan
    loaded_as: list[str] = field(default_factory=list)
    n_ops: int = 0
    faults: list[str] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)


def survey(python: str) -> dict[str, Any] | str:
    """What the machine has, or why no job can run on it."""
    try:
        done = subprocess.run(
            [python, "-m", JOB, "--survey"], env=with_source(os.environ), check=False,
            capture_output=True, text=True, timeout=SURVEY_DEADLINE_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not answer: {error}"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"no usable torch in {python}: {last}"
    found: dict[str, Any] = json.loads(done.stdout)
    if not found["nccl"]:
        return f"torch {found['torch']} has no NCCL"
    return found if found["n_gpus"] else "no GPU"


def with_source(base: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """``base`` with our sources on Python's path."""
    paths = [str(ROOT / "src"), *filter(None, [base.get("PYTHONPATH", "")])]
    return {**base, "PYTHONPATH": os.pathsep.join(paths)}


def job_environment(layout: Plan, folder: Path, *, is_recorded: bool) -> dict[str, str]:
    """The environment of one run of the job; recording is by the plugin alone."""
    ours = ("COMMINSIGHT_", "NCCL_PROFILER")
    base = {n: v for n, v in os.environ.items() if n == BOXES or not n.startswith(ours)}
    environment = with_source(base) | layout.environment
    environment["NCCL_DEBUG"] = "INFO"
    environment["NCCL_DEBUG_FILE"] = str(folder / "nccl.%h.%p.log")
    if is_recorded:
        run_id = f"gpu-{os.getpid()}-{folder.name}"  # boxes of all runs may lie in one folder
        chosen = OwnLauncher(native_library(), None, run_id=run_id, spool=folder / "spool")
        environment |= {one.name: one.value for one in assignments(chosen)}
    return environment


def run_job(python: str, layout: Plan, folder: Path, *, is_recorded: bool) -> list[list[Call]]:
    """The calls of every rank.

    Raises InputError with the end of its output when the job fails.
    """
    folder.mkdir(parents=True)
    command = [
        python, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={layout.n_ranks}", "-m", JOB, "--log", str(folder),
    ]  # fmt: skip
    with (folder / "output.txt").open("w+b") as output:
        job = subprocess.Popen(
            command, env=job_environment(layout, folder, is_recorded=is_recorded),
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code = ended_in_time(job)
    if code:
        tail = (folder / "output.txt").read_text(errors="replace").splitlines()[-5:]
        raise InputError(f"the job ended with {code}: {' | '.join(tail)}", path=str(folder))
    return [read_calls(folder / f"calls-{rank}.jsonl") for rank in range(layout.n_ranks)]


def ended_in_time(job: subprocess.Popen[bytes]) -> int:
    """The job's exit code; one that takes too long is asked to end its workers, then killed."""
    for deadline_s, end in ((JOB_DEADLINE_S, job.terminate), (30.0, job.kill)):
        try:
            return job.wait(deadline_s)
        except subprocess.TimeoutExpired:
            end()
    return job.wait()


def read_calls(path: Path) -> list[Call]:
    """One rank's log."""
    return [call_from(json.loads(line)) for line in path.read_text().splitlines()]


def check(python: str, machine: dict[str, Any], out: Path) -> Result:
    """Runs the job ``ROUNDS`` times each way, in turn, and judges the last recorded one."""
    layout = plan(machine["n_gpus"], [int(n) for n in machine["nccl"].split(".")])
    result = Result(machine, layout)
    times: dict[bool, list[Call]] = {False: [], True: []}
    for number in range(ROUNDS):
        for is_recorded in (False, True):
            folder = out / f"{number}-{'with' if is_recorded else 'without'}"
            calls = run_job(python, layout, folder, is_recorded=is_recorded)
            times[is_recorded] += [call for rank in calls for call in rank]
            if is_recorded:
                judge(result, folder, calls)
    result.costs = costs(times[False], times[True])
    return result


def judge(result: Result, folder: Path, calls: Sequence[list[Call]]) -> None:
    """Adds what one recorded run shows."""
    result.loaded_as = loaded_as(folder)
    if len(result.loaded_as) < len(calls):
        result.faults.append(f"NCCL's log says loaded in {len(result.loaded_as)} ranks")
    if result.plan.n_ranks == 1:
        return
    result.n_ops += sum(len(call.ops) for rank in calls for call in rank)
    by_rank = {s.identity.global_rank: s.records for s in open_run(folder / "spool").sessions}
    for rank, made in enumerate(calls):
        if rank not in by_rank:
            result.faults.append(f"rank {rank} left no records")
        else:
            result.faults += [f"rank {rank}: {text}" for text in faults(made, by_rank[rank])]


def loaded_as(folder: Path) -> list[str]:
    """Name and version of the plugin in every log of NCCL that speaks of loading it."""
    logs = [path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*.log"))]
    return [" ".join(match.groups()) for text in logs if (match := LOADED.search(text))]


def as_markdown(result: Result) -> str:
    """The result as a page."""
    machine, loaded = result.machine, ", ".join(sorted(set(result.loaded_as)))
    lines = [
        "# The plugin under a real NCCL", "",
        f"{machine['n_gpus']} x {machine['gpu']}, NCCL {machine['nccl']}, "
        f"torch {machine['torch']}; {result.plan.n_ranks} ranks; loaded as {loaded or '-'}.",
        f"{result.n_ops} ops made, {len(result.faults)} faults.",
        *(f"- not tested: {text}" for text in result.plan.untested),
        *(f"- fault: {text}" for text in result.faults), "",
        "| call | bytes | without, us | with, us | ratio |", "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for cost in result.costs:
        cells = (cost.name, f"{cost.size_bytes:,}", f"{cost.without_ns / 1e3:,.1f}")
        lines.append(f"| {' | '.join(cells)} | {cost.with_ns / 1e3:,.1f} | {cost.ratio:.3f} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """0 when all holds or nothing can be run, 1 when something does not hold."""
    python = argv[0] if argv else sys.executable
    machine = survey(python)
    if isinstance(machine, str):
        print(f"make gpu: skipped, {machine}")
        return 0
    shutil.rmtree(OUT, ignore_errors=True)
    try:
        result = check(python, machine, OUT)
    except CommInsightError as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 1
    page = as_markdown(result)
    (OUT / "result.json").write_text(json.dumps(asdict(result), indent=2) + "\n")
    (OUT / "result.md").write_text(page)
    print(page, end="")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
