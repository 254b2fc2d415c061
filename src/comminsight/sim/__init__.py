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
    Batching,
    Naming,
    Schedule,
    SimLayout,
    ddp_accumulated_layout,
    ddp_layout,
    ddp_pair_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    fsdp2_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    pipeline_layout,
    serving_batches_layout,
    serving_ep_layout,
    serving_layout,
    tensor_layout,
    zero_layout,
)
from comminsight.sim.noise import Clocks, Jitter
from comminsight.sim.views import hang_event, run_trace

__all__ = [
    "AbsentStep",
    "Batching",
    "Clocks",
    "Fault",
    "FusedStep",
    "Jitter",
    "KilledJob",
    "KilledRank",
    "LateRank",
    "LostRank",
    "LostRecords",
    "Naming",
    "RecorderSettings",
    "Schedule",
    "SimLayout",
    "SimRank",
    "SimRun",
    "SimTruth",
    "SkippedOp",
    "SlowLink",
    "ddp_accumulated_layout",
    "ddp_layout",
    "ddp_pair_layout",
    "fsdp1_layout",
    "fsdp2_accumulated_layout",
    "fsdp2_layout",
    "hang_event",
    "megatron_core_layout",
    "megatron_layout",
    "moe_layout",
    "pipeline_layout",
    "run_trace",
    "serving_batches_layout",
    "serving_ep_layout",
    "serving_layout",
    "simulate",
    "tensor_layout",
    "zero_layout",
]
