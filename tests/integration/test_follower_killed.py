"""A process that makes steps from a stream is killed with SIGKILL again and again: what it leaves
at the end are the bytes of a rebuild."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from comminsight.pipeline.rebuild_tasks import SegmentsTask, rebuild_segments
from comminsight.sim import simulate
from tests.builders.run import small_layout, write_run

ROOT = Path(__file__).resolve().parents[2]
N_STEPS = 60
MAX_LIVES = 60
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from comminsight.pipeline.rebuild import settings_with
from comminsight.pipeline.session_steps import SessionStepper
from comminsight.pipeline.stored_session import open_stored
from comminsight.pipeline.templates import load_templates
session, root = open_stored(Path(sys.argv[1])), Path(sys.argv[2])
stepper = SessionStepper(
    root / "steps", root / "snapshots", load_templates(), settings_with(session.settings),
    session.identity,
)
print("begins at", stepper.delivered_seq, stepper.refusal, flush=True)
records = np.concatenate(list(session.batches()))
records = records[records["seq"] > stepper.delivered_seq]
for first in range(0, len(records), 20):
    stepper.push(session.comms, records[first : first + 20])
    stepper.save()
    print(stepper.delivered_seq, flush=True)
stepper.finish()
print("done", flush=True)
"""


def lives_until_done(folder: Path, target: Path) -> list[int]:
    """Where each life began; each is killed some batches later, until one reaches the end."""
    rng, began = random.Random(5), []
    for _ in range(MAX_LIVES):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(target)], stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:2] == ["begins", "at"], words
            assert words[3:] == [], words  # no snapshot was refused
            began.append(int(words[2]))
            for _ in range(rng.randint(1, 40)):
                line = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            if "done" in line + process.stdout.read():
                return began
    raise AssertionError(f"not done after {MAX_LIVES} lives: {began}")


def test_a_follower_killed_again_and_again_leaves_the_steps_of_a_rebuild(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", simulate(small_layout(), steps=N_STEPS, seed=11))
    folder = sorted((run / "inspector_logs").iterdir())[3]
    (rebuilt,) = rebuild_segments(SegmentsTask(str(folder), str(run / "steps")))
    began = lives_until_done(folder, tmp_path / "online")
    assert len(began) > 2
    assert began == sorted(began)
    assert began[-1] > 0
    steps = tmp_path / "online" / "steps"
    assert (steps / f"{folder.name}.jsonl").read_bytes() == Path(rebuilt.steps_path).read_bytes()
    record = f"{folder.name}.session.json"
    assert (steps / record).read_bytes() == (run / "steps" / record).read_bytes()
