"""What a lab job is told on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields

from comminsight.lab.step_calls import DEVIATIONS, LAYOUTS

NO_RANK = -1
FOREVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class JobOptions:
    """One job and its planted faults; ``*_rank`` -1 plants nothing. Times in ms are slept."""

    job: str = "ddp"
    steps: int = 10
    seed: int = 0
    marks: str = ""
    compute_ms: float = 0.0
    microbatches: int = 4
    layers: int = 2
    hidden: int = 64
    gradient_pad: int = 0
    ops: int = 1000
    chunks: int = 1
    batch_metric: int = 0
    eval_every: int = 0
    checkpoint_every: int = 0
    pause_ms: float = 0.0
    short_from: int = NO_RANK
    short_by: int = 0
    late_rank: int = NO_RANK
    late_from: int = 0
    late_ms: float = 0.0
    stop_rank: int = NO_RANK
    stop_at: int = 0
    stop_seconds: float = FOREVER_S
    slow_rank: int = NO_RANK
    slow_from: int = 0
    slow_ms: float = 0.0
    exit_rank: int = NO_RANK
    exit_at: int = 0
    exit_how: str = "exception"
    exit_after_ms: float = 0.0
    wander_ms: float = 0.0
    layout: str = "dp"
    deviation: str = ""
    deviation_ranks: str = ""
    deviation_at: int = 0
    deviation_place: int = 0
    deviation_other: int = 0


HELP = {
    "job": "which job to run",
    "steps": "training steps",
    "seed": "seed of parameters and data",
    "marks": "truth file: JSON lines, appended by all ranks",
    "compute_ms": "sleep per forward pass of a microbatch, so that compute time is known exactly",
    "microbatches": "microbatches per step (pipeline and accumulation jobs)",
    "layers": "layers (per pipeline stage)",
    "hidden": "width of the model",
    "gradient_pad": "elements added to the gradient buffer of tp_pp_dp, to make transfers long",
    "ops": "ops of the jobs flood and kill",
    "chunks": "model chunks per pipeline stage, more than one interleaves (tp_pp_dp_torch)",
    "batch_metric": "1 reduces a number over all ranks for every microbatch and evaluation batch "
    "(tp_pp_dp)",
    "eval_every": "steps between evaluations, 0 for none",
    "checkpoint_every": "steps between checkpoints, 0 for none",
    "pause_ms": "how long a checkpoint lasts on top of the writing; how long nobody asks (serving)",
    "short_from": "this rank and the ones above it do fewer steps (ddp_members, ddp_join)",
    "short_by": "how many fewer",
    "late_rank": "rank that computes longer in every forward pass",
    "late_from": "first step in which it does",
    "late_ms": "how much longer, per step",
    "stop_rank": "rank that stops entering collectives",
    "stop_at": "step in which it stops",
    "stop_seconds": "how long it stays away",
    "slow_rank": "rank that is frozen while its gradient transfer is under way (tp_pp_dp)",
    "slow_from": "first step in which it is",
    "slow_ms": "for how long",
    "exit_rank": "rank that leaves in the middle of a step",
    "exit_at": "step in which it leaves",
    "exit_how": "exception, sys_exit, os_exit, sigkill, clean (sys.exit(0)), os_exit_clean or "
    "sigstop (it does not leave, it is stopped)",
    "exit_after_ms": "how long after the begin of the step sigkill and sigstop strike; 0: at once",
    "wander_ms": "how much longer the pass of a rank takes that is drawn anew for every step",
    "layout": "groups and ops of the job calls",
    "deviation": "how some ranks deviate from the calls of a step (job calls)",
    "deviation_ranks": "which do, with commas between",
    "deviation_at": "step in which they do",
    "deviation_place": "number of the call that is touched, from 0",
    "deviation_other": "the call that it is exchanged with",
}


def parse(argv: Sequence[str], jobs: Sequence[str]) -> JobOptions:
    """The options in ``argv``; exits with 2 and a usage line when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m comminsight.lab.job",
        description="A real torch.distributed job over gloo on this machine, with planted faults.",
    )
    defaults = JobOptions()
    for field in fields(JobOptions):
        default = getattr(defaults, field.name)
        choices = {
            "job": sorted(jobs),
            "exit_how": EXITS,
            "layout": LAYOUTS,
            "deviation": ("", *DEVIATIONS),
        }.get(field.name)
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=type(default), default=default, choices=choices, help=HELP[field.name],
        )  # fmt: skip
    return JobOptions(**vars(parser.parse_args(argv)))


EXITS = ("exception", "sys_exit", "os_exit", "sigkill", "clean", "os_exit_clean", "sigstop")
