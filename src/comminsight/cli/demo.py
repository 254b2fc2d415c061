"""``comminsight demo``: two real jobs with planted faults, judged, and the verdicts checked.

The first job has a rank that computes late from step 20 on, the second one rank that stops entering
collectives. Of the first it is also told where its communication time goes, and whose lateness that
is. Exit code 0 only when both verdicts name what was planted, and the exposed time its late rank.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from comminsight.cli.typed import terminal_width
from comminsight.diagnosis.hang import judge_hang
from comminsight.errors import ExitCode
from comminsight.lab.truth import read_truth
from comminsight.launch.environment import RecordingOptions
from comminsight.launch.job import RunRequest, run_job
from comminsight.launch.reaction import say
from comminsight.model.exposed import ExposedReport, OwnerKind
from comminsight.model.report import RunReport
from comminsight.model.trace import RunTrace
from comminsight.model.units import NS_PER_MS
from comminsight.model.verdict import Cause, Message, Verdict
from comminsight.pipeline.exposed import exposed_in_run
from comminsight.pipeline.simulated import simulated_sessions
from comminsight.report.catalogue import Catalogue, catalogue
from comminsight.report.exposed_text import render_hotspot
from comminsight.report.text import render_report
from comminsight.run import open_run, run_of_sessions
from comminsight.sim.cluster import simulate
from comminsight.sim.faults import LateRank, LostRank
from comminsight.sim.layout import megatron_layout
from comminsight.sim.views import hang_event

N_RANKS = 8
N_STEPS = 40
COMPUTE_MS = 5  # slept per microbatch, so that what a rank computes is known exactly
LATE_RANK, LATE_FROM_STEP, LATE_MS = 5, 20, 60
ABSENT_RANK, ABSENT_AT_STEP = 3, 8
HANG_OVERDUE_S = 4.0
PROGRESS_S = 3.0
ONSET_TOLERANCE_STEPS = 1


@dataclass(frozen=True, slots=True)
class Planted:
    """What was done to a job, and what must therefore be said of it."""

    title: Message
    faults: tuple[str, ...]
    cause: Cause
    culprits: tuple[int, ...]
    first_step: int = -1


STRAGGLER = Planted(
    title=Message("demo.late", {"rank": LATE_RANK, "ms": LATE_MS, "step": LATE_FROM_STEP}),
    faults=(
        "--late-rank", str(LATE_RANK),
        "--late-from", str(LATE_FROM_STEP),
        "--late-ms", str(LATE_MS),
    ),
    cause=Cause.COMPUTE_STRAGGLER,
    culprits=(LATE_RANK,),
    first_step=LATE_FROM_STEP,
)  # fmt: skip
HANG = Planted(
    title=Message("demo.absent", {"rank": ABSENT_RANK, "step": ABSENT_AT_STEP}),
    faults=("--stop-rank", str(ABSENT_RANK), "--stop-at", str(ABSENT_AT_STEP)),
    cause=Cause.RANK_NOT_ENTERED,
    culprits=(ABSENT_RANK,),
)


def job_command(marks: Path, faults: Sequence[str]) -> tuple[str, ...]:
    """The real job: 8 ranks over gloo, TP 2 x PP 2 x DP 2, on this machine."""
    return (
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(N_RANKS), "-m", "comminsight.lab.job",
        "--job", "tp_pp_dp", "--steps", str(N_STEPS), "--compute-ms", str(COMPUTE_MS),
        "--marks", str(marks), *faults,
    )  # fmt: skip


def run_real(planted: Planted, out: Path, lang: str, *, is_hang: bool) -> Path:
    """The run directory of the finished job."""
    request = RunRequest(
        command=job_command(out.with_suffix(".truth.jsonl"), planted.faults),
        out=out,
        run_id=out.name,
        recording=RecordingOptions(overdue_limit_s=HANG_OVERDUE_S if is_hang else 60.0),
        is_stopped_on_hang=is_hang,
        log=out.with_suffix(".log"),
        lang=lang,
        is_interrupt_ours=True,
    )
    with step_progress(out.with_suffix(".truth.jsonl"), catalogue(lang)):
        run_job(request)
    return out


@contextlib.contextmanager
def step_progress(truth: Path, words: Catalogue) -> Iterator[None]:
    """While the block runs, say every few seconds how many steps the job has done."""
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(PROGRESS_S):
            ended = truth.read_text().count('"kind": "step"') if truth.exists() else 0
            code = "demo.progress" if ended else "demo.starting"
            say(words.text(code, step=ended // N_RANKS, n_steps=N_STEPS))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def judge(planted: Planted, report: RunReport) -> list[str]:
    """What of the verdicts differs from what was planted; empty when all is right."""
    matching = [v for v in report.verdicts if v.cause is planted.cause]
    others = [v for v in report.verdicts if is_accusation(v) and v.cause is not planted.cause]
    faults = [f"{v.cause.value} accuses {list(v.culprits)}, which was not planted" for v in others]
    if not matching:
        return [f"no verdict {planted.cause.value}", *faults]
    verdict = matching[0]
    if verdict.culprits != planted.culprits:
        faults.append(f"culprits {list(verdict.culprits)}, planted {list(planted.culprits)}")
    off = abs(verdict.first_step - planted.first_step)
    if planted.first_step >= 0 and off > ONSET_TOLERANCE_STEPS:
        faults.append(f"since step {verdict.first_step}, planted {planted.first_step}")
    return faults


def judge_steps(report: RunReport, truth: Path) -> list[str]:
    """What differs between the steps rebuilt and those the job itself wrote down."""
    begun = Counter(line["step"] for line in read_truth(truth) if line["kind"] == "step")
    ended = sorted(step for step, n_ranks in begun.items() if n_ranks == N_RANKS)
    if [row.step for row in report.steps] == ended:
        return []
    return [f"{len(report.steps)} steps rebuilt, the job itself counted {len(ended)}"]


def judge_exposure(report: ExposedReport) -> list[str]:
    """What is wrong with where the communication time of the first job goes: no hotspot, sums that
    do not add up, or most lateness of its own making with another rank than the planted one."""
    faults = []
    if not report.ops or not report.ops[0].exposed_ns:
        faults.append("no op with exposed time")
    owned_ns = sum(one.exposed_ns for one in report.owners)
    exposed_ns = sum(one.exposed_ns for one in report.ranks)
    if owned_ns != exposed_ns:
        faults.append(f"{owned_ns} ns have an owner, {exposed_ns} ns are exposed")
    own_ns: Counter[int] = Counter()
    for one in report.owners:
        if one.kind is OwnerKind.LATE:
            own_ns[one.global_rank] += round(one.exposed_ns * (1 - (one.passed_on_ratio or 0.0)))
    latest = own_ns.most_common(1)
    if [rank for rank, _ in latest] != [LATE_RANK]:
        faults.append(f"most exposed time for want of rank {latest}, planted {LATE_RANK}")
    return faults


def is_accusation(verdict: Verdict) -> bool:
    """True when the verdict blames a rank."""
    return bool(verdict.culprits)


def demo(folder: Path, lang: str) -> int:
    """0 when every verdict is right, 1 when one is not."""
    begin, words = time.monotonic(), catalogue(lang)
    faults = []
    for number, planted in enumerate((STRAGGLER, HANG), start=1):
        title = words.message(planted.title)
        say(words.text("demo.job", number=number, n_ranks=N_RANKS, title=title))
        out = run_real(planted, folder / f"demo-{number}", lang, is_hang=planted is HANG)
        report = open_run(out).report()
        truth = out.with_suffix(".truth.jsonl")
        sys.stdout.write(render_report(report, lang=lang, width=terminal_width(), color=False))
        sys.stdout.write("\n")
        sys.stdout.flush()
        faults += judge(planted, report) + judge_steps(report, truth)
        if planted is STRAGGLER:
            faults += tell_exposure(open_run(out).trace, lang)
    return conclude(faults, time.monotonic() - begin, folder, words)


def tell_exposure(trace: RunTrace, lang: str) -> list[str]:
    """Print where the communication time of the run goes; what of it is wrong."""
    exposed = exposed_in_run(trace)
    say(catalogue(lang).text("demo.exposed"))
    sys.stdout.write(render_hotspot(exposed, lang=lang, width=terminal_width()))
    sys.stdout.write("\n")
    sys.stdout.flush()
    return judge_exposure(exposed)


def conclude(faults: Sequence[str], took_s: float, folder: Path, words: Catalogue) -> int:
    """Say whether the verdicts were right; the exit code."""
    for fault in faults:
        say(f"WRONG: {fault}")
    code = "demo.wrong" if faults else "demo.right"
    say(words.text(code, seconds=round(took_s), folder=str(folder)))
    return int(ExitCode.INTERNAL if faults else ExitCode.OK)


def simulated(lang: str) -> int:
    """The same two faults in the simulator, for machines without torch; says so loudly."""
    say(f"torch is not installed{why_no_torch()}: the simulator runs instead")
    banner = "=" * 20 + " SIMULATED: no real job ran " + "=" * 20
    layout = megatron_layout(tp=2, pp=2, dp=2)
    late = LateRank(LATE_RANK, extra_ns=LATE_MS * NS_PER_MS, from_step=LATE_FROM_STEP)
    lost = LostRank(ABSENT_RANK, step=ABSENT_AT_STEP)
    faults: list[str] = []
    for planted, fault in ((STRAGGLER, late), (HANG, lost)):
        run = simulate(layout, steps=N_STEPS, seed=1, faults=(fault,))
        report = run_of_sessions(simulated_sessions(run)).report()
        if planted is HANG:
            hang = judge_hang(hang_event(run), run.communicators)
            report = msgspec.structs.replace(report, verdicts=(hang,))
        page = render_report(report, lang=lang, width=terminal_width(), color=False)
        sys.stdout.write(f"{banner}\n{page}\n")
        faults += judge(planted, report)
        if planted is STRAGGLER:
            faults += tell_exposure(run_of_sessions(simulated_sessions(run)).trace, lang)
        sys.stdout.write(f"{banner}\n")
    for fault_found in faults:
        say(f"WRONG: {fault_found}")
    return int(ExitCode.INTERNAL if faults else ExitCode.OK)


def why_no_torch() -> str:
    """The reason that the set-up kept, if it tried to install torch."""
    kept = Path(sys.prefix) / "torch-missing.txt"
    return f" ({kept.read_text().strip()})" if kept.exists() else ""


def main(argv: Sequence[str]) -> int:
    """Exit code of the demo."""
    parser = argparse.ArgumentParser(prog="comminsight demo", description=__doc__)
    parser.add_argument("--out", type=Path, help="where to keep the runs (default: a new folder)")
    parser.add_argument("--lang", choices=("en", "zh"), default="en")
    options = parser.parse_args(argv)
    folder = options.out or Path(tempfile.mkdtemp(prefix="comminsight-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("demo-*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    if importlib.util.find_spec("torch") is None:
        return simulated(options.lang)
    return demo(folder, options.lang)
