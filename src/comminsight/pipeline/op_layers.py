"""The layers of one op as far as they were recorded: call, task, kernel, network.

What is not there has its reason: the door has no such events, the mask left them out, NCCL does not
tell, or it has not happened yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from comminsight.diagnosis.stuck_op import Stage, channels, running_channels, stage_of, wait_sides
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import (
    Algorithm,
    Backend,
    EndReason,
    OpFlag,
    Protocol,
    SlotFlag,
    TimingSource,
    WaitSide,
)
from comminsight.model.verdict import MessageParam
from comminsight.model.views import Layer
from comminsight.pipeline.nccl_notes import end_reason_code

NO_LAYERS = "layer.not_nccl"
NOT_YET = "layer.not_yet"
NO_CALLS = "layer.no_calls"
REPLAYED = "layer.replayed"
MASKED_KERNEL = "layer.masked_kernel"
MASKED_NETWORK = "layer.masked_network"
NO_PROXY = "layer.no_proxy"
NO_KERNEL_SEEN = "layer.no_kernel"
NO_BOX = "layer.no_box"
FIRST_ABI_WITH_CALLS = 5
HIDES_TASK = (EndReason.NO_TASK, EndReason.COPY_ENGINE)
OF_STEPS = ("posted_bytes", "transmitted_bytes", "done_bytes", "n_send_steps", "n_recv_steps")
OF_PROXIES = ("n_proxy_ops", "n_proxy_ops_done")
WAITS = ("gpu", "peer", "network", "arrival")
US = 1_000
Facts = dict[str, MessageParam]


@dataclass(frozen=True, slots=True)
class OpSource:
    """Everything recorded of one op: its record (``OP_DTYPE``, one row), the op in flight where it
    has not ended, its network summary (``NET_DTYPE``), and what its communicator's row says.
    ``has_network``: the session recorded the network of some op; ``is_cut``: what it was doing last
    stands in a black box that is not at hand."""

    row: np.ndarray
    in_flight: InFlightOp | None
    net: np.ndarray | None
    backend: int
    abi_version: int
    has_network: bool
    is_cut: bool = False

    @property
    def not_yet(self) -> str:
        """Why what follows was not seen of an op that has not ended."""
        return NO_BOX if self.is_cut else NOT_YET

    def offset_ns(self, at_ns: int) -> int:
        """Time since the call."""
        return at_ns - (int(self.row["enqueue_ns"]) or int(self.row["start_ns"]))

    def has(self, flag: SlotFlag) -> bool:
        """Whether an op in flight came so far."""
        return self.in_flight is not None and bool(self.in_flight.slot_flags & flag)


def op_layers(op: OpSource) -> tuple[Layer, ...]:
    """The four layers in the order in which an op passes them."""
    return (_api(op), _task(op), _kernel(op), _network(op))


def _layer(name: str, reason: str, facts: Facts) -> Layer:
    """A layer that was seen, unless there is a reason why it was not."""
    return Layer(name=name, is_seen=not reason, reason=reason, facts={} if reason else facts)


def _known(**facts: MessageParam) -> Facts:
    """The facts that say something: not 0, not empty."""
    return {name: value for name, value in facts.items() if value}


def _word(names: type[IntEnum], code: int) -> str:
    known = {int(member): member.name.lower() for member in names if int(member)}
    return known.get(code, "")


def _api(op: OpSource) -> Layer:
    row, reason = op.row, ""
    if op.backend == Backend.NCCL:
        if 0 < op.abi_version < FIRST_ABI_WITH_CALLS:
            reason = NO_CALLS
        elif int(row["flags"]) & OpFlag.GRAPH:
            reason = REPLAYED
    facts = _known(
        count=int(row["count"]), group_id=int(row["group_id"]), stream_id=int(row["stream_id"]),
        user_tag=int(row["user_tag"]),
    )  # fmt: skip
    return _layer("api", reason, facts)


def _task(op: OpSource) -> Layer:
    row = op.row
    facts = _known(
        algorithm=_word(Algorithm, int(row["algo"])), protocol=_word(Protocol, int(row["proto"])),
        n_channels=int(row["n_channels"]), func_seq=int(row["func_seq"]),
    )  # fmt: skip
    if op.in_flight is not None and op.in_flight.launch_ns:
        facts["launch_offset_ns"] = op.offset_ns(op.in_flight.launch_ns)
    return _layer("task", _no_task(op), facts)


def _no_task(op: OpSource) -> str:
    if op.backend != Backend.NCCL:
        return NO_LAYERS
    if op.in_flight is not None:
        return "" if op.has(SlotFlag.TASK_SEEN) else op.not_yet
    reason = int(op.row["reason"])
    return end_reason_code(reason) if reason in HIDES_TASK else ""


def _kernel(op: OpSource) -> Layer:
    facts = _ended_kernel(op) if op.in_flight is None else _running(op, op.in_flight)
    return _layer("kernel", _no_kernel(op), facts)


def _no_kernel(op: OpSource) -> str:
    if op.backend != Backend.NCCL:
        return NO_LAYERS
    if op.in_flight is not None:
        if op.has(SlotFlag.NO_KERNEL_EVENTS):
            return MASKED_KERNEL
        return "" if op.in_flight.started_mask or op.in_flight.stopped_mask else op.not_yet
    if int(op.row["reason"]):
        is_masked = op.row["reason"] == EndReason.NO_KERNEL_EVENTS
        return MASKED_KERNEL if is_masked else end_reason_code(int(op.row["reason"]))
    return "" if op.row["timing_source"] or op.row["channels_started"] else NO_KERNEL_SEEN


def _ended_kernel(op: OpSource) -> Facts:
    row = op.row
    facts: Facts = {"begin_offset_ns": op.offset_ns(int(row["start_ns"]))}
    if row["end_ns"]:
        facts["end_offset_ns"] = op.offset_ns(int(row["end_ns"]))
        facts["took_ns"] = int(row["end_ns"]) - int(row["start_ns"])
    if row["gpu_start_ns"] and row["gpu_end_ns"]:
        facts["gpu_took_ns"] = int(row["gpu_end_ns"]) - int(row["gpu_start_ns"])
    return facts | _known(
        timing=_word(TimingSource, int(row["timing_source"])),
        clock_error_ns=int(row["clock_error_ns"]), channels_started=int(row["channels_started"]),
        channels_stopped=int(row["channels_stopped"]),
    )  # fmt: skip


def _running(op: OpSource, flying: InFlightOp) -> Facts:
    if flying.is_peerless:  # its calls share channels
        return {"begin_offset_ns": op.offset_ns(flying.start_ns)}
    return _known(
        begin_offset_ns=op.offset_ns(flying.start_ns),
        channels_begun=list(channels(flying.started_mask)),
        channels_running=list(running_channels(flying)),
        channels_ended=list(channels(flying.stopped_mask)),
    )


def _network(op: OpSource) -> Layer:
    if op.net is not None:
        return _layer("network", "", _summary(op, op.net))
    reason = NO_LAYERS
    if op.backend == Backend.NCCL:
        reason = NO_PROXY if op.has_network else MASKED_NETWORK
        if op.is_cut and op.in_flight is not None:
            reason = NO_BOX
    if not op.has(SlotFlag.NETWORK_SEEN) or op.in_flight is None:
        return _layer("network", reason, {})
    flying = op.in_flight
    return _layer("network", "", _known(
        posted_bytes=flying.net_posted_bytes, done_bytes=flying.net_done_bytes,
        progress_offset_ns=op.offset_ns(flying.net_progress_ns) if flying.net_progress_ns else 0,
        **dict(_sides(flying)),
    ))  # fmt: skip


def _sides(flying: InFlightOp) -> Iterator[tuple[str, MessageParam]]:
    for name, side in zip(("send_wait", "receive_wait"), wait_sides(flying) or (), strict=False):
        if side is not WaitSide.NONE:
            yield name, f"wait.{side.name.lower()}"


def _summary(op: OpSource, net: np.ndarray) -> Facts:
    has_steps = bool(net["n_send_steps"] or net["n_recv_steps"])  # with the mask `deep`
    names = (*OF_STEPS, *OF_PROXIES) if has_steps else OF_PROXIES
    facts: Facts = {name: int(net[name]) for name in names}
    for name, field in (("first", "first_event_ns"), ("last", "last_event_ns")):
        if net[field]:
            facts[f"{name}_offset_ns"] = op.offset_ns(int(net[field]))
    waits = {f"{side}_wait_ns": int(net[f"{side}_wait_us"]) * US for side in WAITS}
    return facts | _known(**waits)


def stage_code(op: InFlightOp | None) -> str:
    """The catalogue code of how far an op in flight came; "" where that is not told."""
    if op is None or stage_of(op) is Stage.UNTOLD:
        return ""
    return f"stage.{stage_of(op)}"
