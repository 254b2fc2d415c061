"""The tutorial from a trace to its hotspot: each command is run, and what the text says is held."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial-exposed.md").read_text("utf-8")
TRACE = ROOT.parent / "shared/samples/tracelens-kineto/mi300_resnet_act_checkpoint.json.gz"
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"no sample at {TRACE}")
COMMANDS = re.findall(r"^comminsight (.*)$", TEXT, re.MULTILINE)


def run(command: str) -> str:
    words = [str(TRACE) if word == "TRACE" else word for word in command.split()]
    done = subprocess.run(
        [sys.executable, "-m", "comminsight.cli", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_are_those_that_are_looked_at() -> None:
    assert COMMANDS == ["exposed TRACE", "exposed TRACE --json", "diagnose TRACE"]


def test_the_hotspot_and_its_advice() -> None:
    text = run(COMMANDS[0])
    assert text.startswith("all_reduce has the most exposed time: 35.2 ms over 1 rank, 63%")
    assert "all_reduce: look at payload, number of calls and topology" in " ".join(text.split())
    assert "that takes ops of three known sizes" in " ".join(text.split())


def test_the_worst_calls() -> None:
    first = json.loads(run(COMMANDS[1]))["ops"][0]
    assert (first["op"], len(first["calls"])) == ("all_reduce", 3)
    worst = first["calls"][0]
    assert (worst["step"], round(worst["exposed_ns"] / 1e6, 1)) == (16, 9.2)
    assert first["overlap_ratio"] == pytest.approx(0.25, abs=0.01)
    assert first["calls_per_step"] == 2


def test_the_verdict_accuses_nobody() -> None:
    text = run(COMMANDS[2])
    assert "EXPOSED_COMM, confidence medium" in text
    assert "Culprit" not in text
