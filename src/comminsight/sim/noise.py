"""Everything random in a simulated run, drawn up front from one seed.

Each rank and each group has its own stream, so the result depends neither on the order in which
ranks are run nor on what other ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.sim.faults import Fault, LateRank
from comminsight.sim.program import Phase, Segment

_WORK_STREAM, _TRANSFER_STREAM, _CLOCK_STREAM, _LOSS_STREAM = range(4)
_POOL_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Jitter:
    """Noise of own work and of transfers.

    Segments scale by a lognormal of ``sigma`` around 1; a segment meets a hiccup of about
    ``hiccup_ns`` (exponential) with ``hiccup_rate``; each rank is constantly faster or slower by
    about ``rank_sigma``. ``ratios`` (measured duration / its median, of real segments) replaces
    lognormal and hiccups by resampling.
    """

    sigma: float = 0.02
    hiccup_rate: float = 0.001
    hiccup_ns: int = 5_000_000
    rank_sigma: float = 0.002
    transfer_sigma: float = 0.05
    ratios: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of the nodes: offsets within ± ``spread_ns`` and drifts within ± ``drift_ppm``."""

    spread_ns: int = 2_000_000
    drift_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeClock:
    """``local = origin + offset + elapsed * (1 + drift)``."""

    offset_ns: int
    drift_ratio: float

    def local_ns(self, true_ns: np.ndarray) -> np.ndarray:
        """Node-local time of true instants counted from the start of the run."""
        drift_ns = np.round(true_ns * self.drift_ratio).astype(np.int64)
        local_ns: np.ndarray = true_ns + drift_ns + self.offset_ns
        return local_ns


@dataclass(frozen=True, slots=True)
class Noise:
    """Draws of one run."""

    seed: int
    jitter: Jitter

    def work_ns(
        self, global_rank: int, segments: list[Segment], steps: int, faults: tuple[Fault, ...]
    ) -> np.ndarray:
        """Durations of this rank's segments, ``(steps, n_segments)`` integer nanoseconds."""
        rng = np.random.default_rng([self.seed, _WORK_STREAM, global_rank])
        base_ns = np.array([segment.duration_ns for segment in segments], np.float64)
        drawn_ns = base_ns * self._ratios(rng, (steps, len(segments)))
        if self.jitter.ratios is None:
            hits = rng.random(drawn_ns.shape) < self.jitter.hiccup_rate
            drawn_ns += hits * rng.exponential(self.jitter.hiccup_ns, drawn_ns.shape)
        is_spread = np.array([s.phase in {Phase.FORWARD, Phase.BACKWARD} for s in segments])
        share = base_ns * is_spread / max(1.0, float((base_ns * is_spread).sum()))
        for fault in faults:
            if isinstance(fault, LateRank) and fault.rank == global_rank:
                drawn_ns += np.outer(_late_ns(fault, steps, rng), share)
        whole_ns: np.ndarray = np.maximum(np.round(drawn_ns), 0).astype(np.int64)
        return whole_ns

    def transfer_ratios(self, stream: int) -> list[float]:
        """A pool of factors for the transfers of one group or pair, used round robin."""
        rng = np.random.default_rng([self.seed, _TRANSFER_STREAM, stream])
        sigma = self.jitter.transfer_sigma
        ratios: list[float] = rng.lognormal(-sigma * sigma / 2, sigma, _POOL_SIZE).tolist()
        return ratios

    def node_clocks(self, n_nodes: int, clocks: Clocks) -> tuple[NodeClock, ...]:
        """One clock per node; node 0 is the reference of drift and offset."""
        rng = np.random.default_rng([self.seed, _CLOCK_STREAM])
        offsets = rng.uniform(-clocks.spread_ns, clocks.spread_ns, n_nodes).round().astype(int)
        drifts = rng.uniform(-clocks.drift_ppm, clocks.drift_ppm, n_nodes) * 1e-6
        offsets[0], drifts[0] = 0, 0.0
        return tuple(NodeClock(int(o), float(d)) for o, d in zip(offsets, drifts, strict=True))

    def loss_stream(self, global_rank: int) -> np.random.Generator:
        """The generator that decides which of a rank's records are lost."""
        return np.random.default_rng([self.seed, _LOSS_STREAM, global_rank])

    def _ratios(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        jitter = self.jitter
        constant = 1.0 + jitter.rank_sigma * rng.standard_normal()
        if jitter.ratios is not None:
            return constant * rng.choice(jitter.ratios, shape)
        return constant * rng.lognormal(-(jitter.sigma**2) / 2, jitter.sigma, shape)


def _late_ns(fault: LateRank, steps: int, rng: np.random.Generator) -> np.ndarray:
    index = np.arange(steps)
    is_due = (index >= fault.from_step) & (index < fault.until_step)
    is_due &= (index - fault.from_step) % fault.every == 0
    is_due &= rng.random(steps) < fault.probability
    return is_due * float(fault.extra_ns)
