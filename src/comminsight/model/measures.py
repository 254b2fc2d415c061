"""Measured quantities of a run, per aligned step and rank, as the straggler rules take them.

Arrays are ``(n_steps, n_ranks)`` in the order of ``steps`` and ``global_ranks``; times are integer
nanoseconds; a rank without a usable step has ``is_complete`` false and zeros. No thresholds here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class StragglerMeasures:
    """Waits and blame of a run.

    ``index_pct``: Straggler Index of the article. ``caused_wait_ns``: its mean net caused wait.
    ``waited_ns``: union of the rank's waits for anyone. ``own_delay_ns``: delay that began in this
    rank's own work (it entered late though nothing held it up). ``transfer_delay_ns``: delay that
    began in a transfer this rank took part in after all members had entered. ``passed_on_ns``:
    delay inherited from others and passed on. ``step_cost_ns``: by how much the rank's own and
    transfer delay lengthened the step (along the critical path; 0 where slack hid it, and 0 for
    all but the ranks with the largest delays of the step: at least 8 of them, in large worlds the
    square root of the world). ``n_incomparable`` counts op instances across nodes whose clocks
    could not be aligned: they give no waits. ``hidden_ratio`` is the share of time (of the rank
    with most) in P2P of which nobody knows for whom it waits, ``untimed_ratio`` that of ops of
    which only the call was seen. ``moved_bytes``: sizes of a rank's ops of the step, summed;
    ``input_wait_ns``: its wait for input; None where it was not measured.
    """

    steps: np.ndarray
    global_ranks: np.ndarray
    hosts: tuple[str, ...]
    coords: tuple[str, ...]
    is_complete: np.ndarray
    span_ns: np.ndarray
    period_ns: np.ndarray
    index_pct: np.ndarray
    caused_wait_ns: np.ndarray
    waited_ns: np.ndarray
    own_delay_ns: np.ndarray
    transfer_delay_ns: np.ndarray
    passed_on_ns: np.ndarray
    step_cost_ns: np.ndarray
    clock_error_ns: int = 0
    n_unpaired: int = 0
    n_incomplete: int = 0
    n_mismatched: int = 0
    n_incomparable: int = 0
    hidden_ratio: float = 0.0
    untimed_ratio: float = 0.0
    moved_bytes: np.ndarray | None = None
    input_wait_ns: np.ndarray | None = None
