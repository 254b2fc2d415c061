"""Fuzzing of everything that reads what others wrote.

Run: ``python -m tests.fuzz.fuzz [seconds] [seed]`` (``make fuzz``). An input that ends in another
error than InputError, takes longer than ``MAX_INPUT_S`` of CPU or makes memory grow is kept in
``build/fuzz`` and ends the run with exit code 1.
"""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, Target, run

KEPT = Path(__file__).resolve().parents[2] / "build" / "fuzz"
MAX_INPUT_S = 2.0
MAX_GROWTH_MIB = 300
MAX_ADDRESS_BYTES = 4 << 30  # an input that asks for more ends in MemoryError


class TooSlowError(Exception):
    """One input took longer than it may."""


@dataclass
class Outcome:
    """How many inputs each reader was given, and how many it read."""

    n_inputs: Counter[str] = field(default_factory=Counter)
    n_read: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    growth_mib: float = 0.0


@contextmanager
def limited(max_input_s: float) -> Iterator[None]:
    """Ends what takes longer, in CPU time of this process."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"longer than {max_input_s} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(n_inputs: int, *, max_s: float = float("inf"), seed: int = 1) -> Outcome:
    """At most ``n_inputs`` inputs within ``max_s``; raises what should not have come out."""
    rng = random.Random(seed)
    outcome, begin_s = Outcome(), time.monotonic()
    shares = [target.share for target in TARGETS]
    for target in TARGETS:
        for data in target.seeds:
            assert run(target, data, rng), f"{target.name}: a seed is refused"
    before_mib = peak_mib()
    with limited(MAX_INPUT_S):
        for number in range(n_inputs):
            if number % 256 == 0 and time.monotonic() - begin_s > max_s:
                break
            (target,) = rng.choices(TARGETS, shares)
            one(target, mutated(rng, target.seeds, target.kinds), rng, outcome)
    outcome.growth_mib = peak_mib() - before_mib
    return outcome


def one(target: Target, data: bytes, rng: random.Random, outcome: Outcome) -> None:
    """One input; it is kept where it fails."""
    begin_s = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_INPUT_S)
    try:
        is_read = run(target, data, rng)
    except BaseException as error:
        path = keep(target, data)
        error.add_note(f"{target.name}: {path}")
        raise
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    outcome.n_inputs[target.name] += 1
    outcome.n_read[target.name] += is_read
    outcome.slowest_s = max(outcome.slowest_s, time.process_time() - begin_s)


def keep(target: Target, data: bytes) -> Path:
    """The input in a file of its own."""
    KEPT.mkdir(parents=True, exist_ok=True)
    digest = hashlib.blake2b(data, digest_size=6).hexdigest()
    path = KEPT / f"{target.name.replace(', ', '-').lower()}-{digest}"
    path.write_bytes(data)
    return path


def table(outcome: Outcome) -> str:
    rows = [
        f"  {target.name:14} {outcome.n_inputs[target.name]:9,} inputs"
        f" {outcome.n_read[target.name]:9,} read"
        for target in TARGETS
    ]
    total = sum(outcome.n_inputs.values())
    end = f"slowest {outcome.slowest_s * 1000:.0f} ms, memory grew by {outcome.growth_mib:.0f} MiB"
    return "\n".join([*rows, f"  {total:,} inputs; {end}"])


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 31)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
    print(f"fuzzing for {seconds:.0f} s, seed {seed}", flush=True)
    outcome = fuzz(1 << 60, max_s=seconds, seed=seed)  # what comes out ends the run, as it is
    print(table(outcome))
    return int(outcome.growth_mib > MAX_GROWTH_MIB)


if __name__ == "__main__":
    sys.exit(main())
