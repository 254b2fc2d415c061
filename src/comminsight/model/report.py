"""Everything a report shows, computed: ``report`` only formats it.

Lists are per step or per rank in ascending order; times are nanoseconds, ratios 0-1, the
Straggler Index 0-100 as in its definition.
"""

from __future__ import annotations

import msgspec

from comminsight.model.layout import ParallelLayout
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Coverage, Message, Verdict

REPORT_SCHEMA_VERSION = "1.6.0"  # major: a key went or changed meaning; minor: a key came


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the run was and how it ended. ``end`` is one of: running, exited, killed, unknown.

    ``clock`` is what waits were measured on: ``aligned`` or ``raw``, "" where nothing was.
    ``step_view`` says whose step numbers the report shows: ``raw`` or ``calibrated``.
    """

    run_id: str
    path: str
    world_size: int
    ranks_seen: int
    hosts: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    started_real_ns: int = 0
    ended_real_ns: int = 0
    end: str = "unknown"
    exit_code: int | None = None
    killed_ranks: tuple[int, ...] = ()
    clock: str = ""
    step_view: str = "raw"


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step over all ranks (mean over the ranks that have it).

    ``phase_ns`` is the time in each kind of phase, by ``PhaseKind``: a mean over the ranks with
    phases; kinds may overlap, and what lies in none of them is unknown. ``n_microbatches`` is 0
    where no rank knows or ranks differ. ``n_lost`` and ``n_late`` count records of all ranks.
    """

    step: int
    n_ranks: int
    span_ns: int
    period_ns: int
    gap_ns: int
    n_ops: int
    is_complete: bool
    template: str
    phase_ns: dict[str, int] = {}
    n_lost: int = 0
    n_late: int = 0
    n_microbatches: int = 0


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank over the steps of the report."""

    global_rank: int
    host: str
    n_steps: int
    straggler_index_pct: float
    caused_wait_ns: int  # net waits charged to this rank by the pair formula, mean per step
    origin_delay_ns: int  # delay that began at this rank by propagation, mean per step
    passed_on_delay_ns: int  # delay inherited and passed on, mean per step
    waited_ns: int  # time this rank waited for others, mean per step
    coords: str = ""  # place in the parallel layout, such as "tp0 pp1 dp0", where known
    excluded_steps: tuple[int, ...] = ()  # not complete for this rank: in none of its means
    device: str = ""  # GPU as its communicators name it, such as "gpu 3 (0000:1b:00.0)"


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``comminsight report``. ``schema_version`` follows semver of the JSON form."""

    schema_version: str
    facts: RunFacts
    coverage: Coverage
    communicators: tuple[Communicator, ...] = ()
    steps: tuple[StepRow, ...] = ()
    ranks: tuple[RankRow, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[Message, ...] = ()
    tally: dict[str, int] = {}
    layout: ParallelLayout | None = None
