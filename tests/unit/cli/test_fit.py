"""``comminsight fit`` through the front door, on tables of nccl-tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from tests.unit.cli.calling import call

HEADER = """\
# all_reduce_perf
#  Rank  0 Group  0 Pid  11 on     n0 device  0 [0x01] GPU
#  Rank  1 Group  0 Pid  12 on     n0 device  1 [0x02] GPU
#       size         count      type   redop    root     time   algbw   busbw #wrong
"""


def table(path: Path, startup_us: float, rate_gbs: float, sizes: list[int]) -> Path:
    rows = []
    for n, size in enumerate(sizes):
        time_us = (startup_us + size / rate_gbs / 1000) * (1.02 if n % 2 else 0.98)
        gbs = size / time_us / 1000
        numbers = f"{time_us:.2f} {gbs:.4f} {gbs:.4f}"
        rows.append(f" {size} {size // 4} float sum -1 {numbers} 0\n")
    path.write_text(HEADER + "".join(rows))
    return path


SIZES = [1 << k for k in range(12, 29, 2)]


def test_startup_and_rate_of_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "fit", table(tmp_path / "a.txt", 20.0, 40.0, SIZES), "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    (found,) = told["fits"]
    assert (found["tier"], found["n_ranks"], found["no_fit"]) == ("node", 2, None)
    assert found["startup_ns"] == pytest.approx(20_000, rel=0.05)
    assert found["rate_gbs"] == pytest.approx(40, rel=0.05)
    assert found["startup_low_ns"] < 20_000 < found["startup_high_ns"]


@pytest.mark.parametrize(("startup_us", "rate_gbs", "said"), [
    (20.0, 40.0, None), (60.0, 40.0, "the startup is longer"), (20.0, 15.0, "the rate is lower"),
])  # fmt: skip
def test_two_days(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], startup_us: float, rate_gbs: float,
    said: str | None,
) -> None:  # fmt: skip
    days = [table(tmp_path / "a.txt", 20.0, 40.0, SIZES),
            table(tmp_path / "b.txt", startup_us, rate_gbs, SIZES)]  # fmt: skip
    code, out, _ = call(capfd, "fit", *days)
    assert code == ExitCode.OK
    worse = [line for line in out.splitlines() if "longer" in line or "lower" in line]
    assert len(worse) == (said is not None)
    assert said is None or said in " ".join(out.split())


def test_too_few_sizes_have_no_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capfd, "fit", table(tmp_path / "a.txt", 20.0, 40.0, SIZES[:2]))
    assert "no model" in " ".join(out.split())
