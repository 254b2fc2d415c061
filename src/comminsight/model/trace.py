"""What analysis works on: the finished ops of every rank, with communicators joined over the run.

These hold numpy arrays and are therefore dataclasses; nothing here is serialised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator, SessionIdentity


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One session's ops: ``OP_DTYPE`` rows of kind COLLECTIVE or P2P that have ended, each op once,
    sorted by (start_ns, seq). ``comm_ids[comm_index]`` is the run's ``comm_id``, -1 if unknown.
    Times are the session's own CLOCK_MONOTONIC. ``unseen_calls``: by ``comm_index`` the calls that
    nobody was told of, so that numbers of ops lack them."""

    session: SessionIdentity
    ops: np.ndarray
    comm_ids: np.ndarray
    unseen_calls: Mapping[int, int] = field(default_factory=dict)

    @property
    def global_rank(self) -> int:
        """The rank the session speaks for."""
        return self.session.global_rank

    def comm_ids_of(self, comm_index: np.ndarray) -> np.ndarray:
        """The run's comm_id of every ``comm_index``; -1 outside of the session's table, whose rows
        may be lost."""
        table = np.append(self.comm_ids, -1).astype(np.int64)
        found: np.ndarray = table[np.minimum(comm_index, len(self.comm_ids))]
        return found


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """``aligned = local + offset_ns[boot_id]``; ``error_ns[boot_id]`` is the half-width.

    Sessions of one boot id share a clock exactly. A boot id that is not in the tables could not be
    aligned: instances that cross it are not evidence.
    """

    offset_ns: dict[str, int] = field(default_factory=dict)
    error_ns: dict[str, int] = field(default_factory=dict)

    @property
    def max_error_ns(self) -> int:
        """Largest uncertainty of any node; 0 when all ranks share one clock."""
        return max(self.error_ns.values(), default=0)


@dataclass(frozen=True, slots=True)
class RunTrace:
    """The whole run: ``communicators[comm_id]``; ``steps[session_id]`` in step order."""

    ranks: tuple[RankTrace, ...]
    communicators: tuple[Communicator, ...]
    steps: dict[str, tuple[StepSummary, ...]]
    clocks: ClockOffsets
    world_size: int
