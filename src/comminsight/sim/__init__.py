"""A simulated cluster: the records real jobs would leave, with the truth beside them.

``simulate(layout, steps=…, seed=…, faults=…)`` is a pure function of its arguments.
"""

from comminsight.sim.arrival import RecorderSettings
from comminsight.sim.cluster import SimRank, SimRun, SimTruth, simulate
from comminsight.sim.faults import (
    AbsentStep,
    Fault,
    FusedStep,
    KilledJob,
    KilledRank,
    LateRank,
    LostRank,
    LostRecords,
    SkippedOp,
    SlowLink,
)
from comminsight.sim.layout import (
    Schedule,
    SimLayout,
    ddp_layout,
    fsdp2_layout,
    megatron_layout,
    moe_layout,
)
from comminsight.sim.noise import Clocks, Jitter
from comminsight.sim.views import hang_event, run_trace

__all__ = [
    "AbsentStep",
    "Clocks",
    "Fault",
    "FusedStep",
    "Jitter",
    "KilledJob",
    "KilledRank",
    "LateRank",
    "LostRank",
    "LostRecords",
    "RecorderSettings",
    "Schedule",
    "SimLayout",
    "SimRank",
    "SimRun",
    "SimTruth",
    "SkippedOp",
    "SlowLink",
    "ddp_layout",
    "fsdp2_layout",
    "hang_event",
    "megatron_layout",
    "moe_layout",
    "run_trace",
    "simulate",
]
