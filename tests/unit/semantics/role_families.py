"""Families of training and serving jobs with parameters, for ``role_jobs``.

Activations are ``hidden``; keys and values are smaller by ``kv_ratio`` (grouped queries).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from comminsight.model.ops import CommRole, DType, Op
from tests.unit.semantics.role_jobs import MIB, Axes, Job, Mesh, Script

RIGHT = {
    "tp": {CommRole.TP}, "cp": {CommRole.CP}, "ep": {CommRole.EP}, "edp": {CommRole.EDP},
    "pp": {CommRole.PP}, "shard": {CommRole.DP_SHARD}, "replicate": {CommRole.DP_REPLICATE},
    "dp": {CommRole.DP, CommRole.DP_SHARD}, "world": {CommRole.GLOBAL},
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """One training job. ``cp_style``: ulysses, spread (each exchange as its projection is
    done), fused, gather, regather, split (keys and values on their own), ring; ``ep_style``:
    counted, combined (only what comes back varies), spaced, paired; ``metric_bytes`` are averaged
    over DP once per step; ``dp_style``: ddp, overlapped, dist_opt, fsdp, prefetched, hsdp, none;
    ``world_style``: silent, barrier, scalar, numbers."""

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    replicas: int = 1
    layers: int = 4
    microbatches: int = 1
    steps: int = 5
    buckets: int = 4
    are_buckets_equal: bool = True
    hidden_bytes: int = 4 * MIB
    layer_bytes: int = 24 * MIB
    kv_ratio: int = 1
    has_sequence_parallel: bool = False
    cp_style: str = "ring"
    ep_style: str = "counted"
    dp_style: str = "ddp"
    world_style: str = "scalar"
    metric_bytes: int = 0
    is_serial: bool = True
    mesh_order: tuple[str, ...] = ("tp", "cp", "ep", "dp", "replicas", "pp")


def training(shape: Shape) -> Job:
    """The job of a shape."""
    mesh = Mesh({axis: getattr(shape, axis) for axis in shape.mesh_order})
    axes: dict[str, Axes] = {
        "world": shape.mesh_order, "tp": ("tp",), "cp": ("cp",), "pp": ("pp",),
    }  # fmt: skip
    if shape.ep > 1:
        axes |= {"ep": ("ep",), "edp": ("dp",)}
    if shape.dp_style == "hsdp":
        axes |= {"shard": ("cp", "dp"), "replicate": ("replicas",)}
    else:
        axes["dp"] = ("cp", "ep", "dp")
    return Job(mesh, axes, _Training(shape), shape.is_serial, str(shape))


class _Training:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, script: Script) -> None:
        for _ in range(self._shape.steps):
            _Step(self._shape, script).write()


class _Step:
    """One step of one rank."""

    def __init__(self, shape: Shape, script: Script) -> None:
        self._shape, self._script = shape, script
        self._pending: list[int] = []
        self._n_issued = 0

    def write(self) -> None:
        shape, script = self._shape, self._script
        script.work(2_000)
        stage, last = script.place("pp"), script.size("pp") - 1
        warm_up = min(shape.microbatches, last - stage)
        for nth in range(shape.microbatches + warm_up):
            if nth < shape.microbatches:
                self._pass(is_backward=False, is_last=False)
            if nth >= warm_up:
                self._pass(is_backward=True, is_last=nth + 1 == shape.microbatches + warm_up)
        self._end()

    def _pass(self, *, is_backward: bool, is_last: bool) -> None:
        shape, script = self._shape, self._script
        stage, last = script.place("pp"), script.size("pp") - 1
        before, after = (stage + 1, stage - 1) if is_backward else (stage - 1, stage + 1)
        if 0 <= before <= last:
            script.wait(script.issue("pp", Op.RECV, shape.hidden_bytes, peer=before))
        self._prefetch = [self._parameters()] if shape.dp_style == "prefetched" else []
        for layer in range(shape.layers):
            self._shards(layer)
            self._attention(is_backward=is_backward)
            self._tensor(is_backward=is_backward)
            self._experts(is_backward=is_backward)
            self._tensor(is_backward=is_backward)
            if is_backward:
                self._gradients(layer, is_last=is_last)
        if 0 <= after <= last:
            script.issue("pp", Op.SEND, shape.hidden_bytes, peer=after)

    # data parallel

    @property
    def _shard_group(self) -> str:
        return "shard" if self._shape.dp_style == "hsdp" else "dp"

    def _parameters(self) -> int:
        size = self._script.size(self._shard_group)
        return self._script.issue(self._shard_group, Op.ALL_GATHER, self._shape.layer_bytes // size)

    def _shards(self, layer: int) -> None:
        style = self._shape.dp_style
        if style in {"fsdp", "hsdp"}:
            self._script.wait(self._parameters())
        elif style == "prefetched":
            current = self._prefetch.pop()
            if layer + 1 < self._shape.layers:
                self._prefetch.append(self._parameters())
            self._script.wait(current)

    def _gradients(self, layer: int, *, is_last: bool) -> None:
        shape, script = self._shape, self._script
        if shape.dp_style in {"fsdp", "hsdp", "prefetched"}:
            end = script.issue(self._shard_group, Op.REDUCE_SCATTER, shape.layer_bytes)
            self._pending.append(end)
            if shape.dp_style == "hsdp":
                script.wait(end)
                part = shape.layer_bytes // script.size("shard")
                self._pending.append(script.issue("replicate", Op.ALL_REDUCE, part))
        elif shape.dp_style == "overlapped" and is_last:
            ready = shape.buckets * (layer + 1) // shape.layers
            while self._n_issued < ready:
                self._bucket(Op.ALL_REDUCE)

    def _bucket(self, op: Op) -> None:
        shape, script = self._shape, self._script
        size_bytes = 8 * MIB
        if not shape.are_buckets_equal:
            size_bytes += 4096 * (self._n_issued % 7)
        self._n_issued += 1
        for group in ("dp", "edp"):
            self._pending.append(script.issue(group, op, size_bytes, dtype=DType.FLOAT32))

    def _end(self) -> None:
        shape, script = self._shape, self._script
        script.wait(*self._pending, script.now_ns)
        has_buckets = shape.dp_style in {"ddp", "dist_opt"}
        op = Op.REDUCE_SCATTER if shape.dp_style == "dist_opt" else Op.ALL_REDUCE
        for _ in range(shape.buckets if has_buckets else 0):
            self._bucket(op)
        script.wait(*self._pending, script.now_ns)
        if shape.world_style == "numbers":
            script.call("world", Op.ALL_REDUCE, 4, dtype=DType.INT32)
        script.work(3_000)
        for _ in range(shape.buckets if shape.dp_style == "dist_opt" else 0):
            for group in ("dp", "edp"):
                script.call(group, Op.ALL_GATHER, 8 * MIB // script.size(group))
        if shape.metric_bytes:
            script.call("dp", Op.ALL_REDUCE, shape.metric_bytes, dtype=DType.FLOAT32)
        if shape.world_style == "barrier":
            script.call("world", Op.BARRIER, 0)
        elif shape.world_style == "scalar":
            script.call("world", Op.ALL_REDUCE, 4, dtype=DType.FLOAT32)

    # inside layers

    def _tensor(self, *, is_backward: bool) -> None:
        shape, script = self._shape, self._script
        script.work(700 * (1 + is_backward))
        if not shape.has_sequence_parallel:
            script.call("tp", Op.ALL_REDUCE, shape.hidden_bytes)
            return
        script.call("tp", Op.ALL_GATHER, shape.hidden_bytes // script.size("tp"))
        script.work(300)
        if is_backward:  # the inputs again, for the gradient of the weights
            script.call("tp", Op.ALL_GATHER, shape.hidden_bytes // script.size("tp"))
        script.call("tp", Op.REDUCE_SCATTER, shape.hidden_bytes)

    def _attention(self, *, is_backward: bool) -> None:
        shape, script = self._shape, self._script
        if script.size("cp") == 1:
            return
        attend_us = 1_500 * (1 + is_backward)
        own, kv = shape.hidden_bytes, shape.hidden_bytes // shape.kv_ratio
        if shape.cp_style in {"ulysses", "spread", "fused"}:
            parts = [own + 2 * kv] if shape.cp_style == "fused" else [own, kv, kv]
            before, after = ([own], parts) if is_backward else (parts, [own])
            self._exchange(before)
            script.work(attend_us)
            self._exchange(after)
        elif shape.cp_style in {"gather", "regather", "split"}:
            parts = [kv, kv] if shape.cp_style == "split" else [2 * kv]
            if not is_backward or shape.cp_style != "gather":
                script.wait(*[script.issue("cp", Op.ALL_GATHER, size) for size in parts])
            script.work(attend_us)
            if is_backward:
                sizes = [size * script.size("cp") for size in parts]
                script.wait(*[script.issue("cp", Op.REDUCE_SCATTER, size) for size in sizes])
        else:
            self._ring(2 * kv, attend_us)

    def _exchange(self, sizes: list[int]) -> None:
        for nth, size_bytes in enumerate(sizes):
            if nth and self._shape.cp_style == "spread":
                self._script.work(150)
            self._script.call("cp", Op.ALL_TO_ALL, size_bytes)

    def _ring(self, size_bytes: int, attend_us: float) -> None:
        script = self._script
        n, own = script.size("cp"), script.place("cp")
        for _ in range(n - 1):
            script.n_groups += 1
            ends = [
                script.issue("cp", op, size_bytes, peer=peer % n, group_id=script.n_groups)
                for op, peer in ((Op.SEND, own + 1), (Op.RECV, own - 1))
            ]
            script.work(attend_us / n)
            script.wait(*ends)

    def _experts(self, *, is_backward: bool) -> None:
        shape, script = self._shape, self._script
        if script.size("ep") == 1:
            return
        script.work(500 * (1 + is_backward))
        to_experts = back = shape.hidden_bytes
        if shape.ep_style in {"counted", "combined"}:
            back = 4096 * script.rng.randrange(200, 1200)
        if shape.ep_style == "counted":
            to_experts = back
            if not is_backward:
                script.call("ep", Op.ALL_TO_ALL, 64 * 8, dtype=DType.INT64)
        script.call("ep", Op.ALL_TO_ALL, to_experts)
        if shape.ep_style != "paired":
            script.work(900 * (1 + is_backward))
        script.call("ep", Op.ALL_TO_ALL, back)


def serving(
    *, tp: int, replicas: int, layers: int, steps: int, prefill_every: int, ep_style: str = "",
    is_serial: bool = True,
) -> Job:  # fmt: skip
    """Iterations of replicas that decode; experts over all ranks with ``ep_style``."""
    mesh = Mesh({"tp": tp, "dp": replicas})
    axes: dict[str, Axes] = {"tp": ("tp",)}
    if ep_style:
        axes |= {"dp": ("dp",), "ep": ("tp", "dp")}

    def write(script: Script) -> None:
        for step in range(steps):
            factor = 16 if prefill_every and step % prefill_every == 0 else 1
            script.work(300)
            if ep_style:
                script.call("dp", Op.ALL_GATHER, 8, dtype=DType.INT64)
            size_bytes = 65_536 * factor
            script.call("tp", Op.ALL_REDUCE, size_bytes)
            for _ in range(layers):
                script.work(200 * factor)
                script.call("tp", Op.ALL_REDUCE, size_bytes)
                script.work(200 * factor)
                if ep_style:
                    script.call("ep", Op.ALL_TO_ALL, size_bytes)
                    script.work(300 * factor)
                    script.call("ep", Op.ALL_TO_ALL, size_bytes)
                else:
                    script.call("tp", Op.ALL_REDUCE, size_bytes)
            script.call("tp", Op.ALL_GATHER, 65_536)
            script.work(100)

    return Job(mesh, axes, write, is_serial, f"serving {tp=} {replicas=} {layers=} {ep_style=}")


AROUND = ("ulysses", "spread", "fused")
GATHERS = ("gather", "regather", "split")
EP_STYLES = ("counted", "combined", "spaced", "paired")
DP_STYLES = ("ddp", "overlapped", "dist_opt", "fsdp", "prefetched")
WORLD_STYLES = ("silent", "barrier", "scalar", "numbers")


def random_job(seed: int) -> tuple[str, Job]:
    """One job of any family, with the name of the family."""
    rng = random.Random(seed)
    family = rng.choice(
        ("tp dp", "subgroup", "ulysses", "gather", "ring", "fsdp", "hsdp", "moe", "pipeline",
         "serving")
    )  # fmt: skip
    common: dict[str, Any] = {
        "layers": rng.randint(1, 6), "steps": rng.randint(4, 8), "is_serial": rng.random() < 0.6,
        "world_style": rng.choice(WORLD_STYLES), "has_sequence_parallel": rng.random() < 0.5,
        "buckets": rng.choice((1, 2, 4, 8, 20, 64)), "are_buckets_equal": rng.random() < 0.6,
        "kv_ratio": rng.choice((1, 4)), "microbatches": rng.choice((1, 1, 2, 4)),
        "dp_style": rng.choice(DP_STYLES), "hidden_bytes": rng.choice((1, 4, 16)) * MIB,
        "metric_bytes": rng.choice((0, 0, 0, 2_048)),
    }  # fmt: skip
    if family == "serving":
        return family, serving(
            tp=rng.choice((2, 4)), replicas=rng.choice((1, 2, 4)), layers=rng.randint(2, 6),
            steps=rng.randint(8, 20), prefill_every=rng.choice((0, 3, 5)),
            ep_style=rng.choice(("", "", "spaced")), is_serial=rng.random() < 0.6,
        )  # fmt: skip
    shape = Shape(**(common | _own(family, rng)))
    return family, training(shape)


def _own(family: str, rng: random.Random) -> dict[str, Any]:
    few = (1, 1, 2, 4)
    groups = {"dp": rng.choice(few), "tp": rng.choice(few)}
    several = rng.choice((2, 4))
    match family:
        case "tp dp":
            return {"tp": rng.choice((2, 4)), "dp": several}
        case "subgroup":
            return {"dp": several, "replicas": rng.choice((2, 4))}
        case "ulysses":
            return {**groups, "cp": several, "cp_style": rng.choice(AROUND)}
        case "gather":
            return {**groups, "cp": several, "cp_style": rng.choice(GATHERS)}
        case "ring":
            return {**groups, "cp": several}
        case "fsdp":
            sharded = rng.choice(("fsdp", "prefetched"))
            return {**groups, "dp": rng.choice((2, 4, 8)), "dp_style": sharded}
        case "hsdp":
            return {**groups, "dp": several, "replicas": rng.choice((2, 4)), "dp_style": "hsdp"}
        case "moe":
            return {**groups, "ep": several, "ep_style": rng.choice(EP_STYLES)}
    return {
        **groups, "pp": several, "cp": rng.choice((1, 1, 2)),
        "cp_style": rng.choice((*AROUND, *GATHERS, "ring")), "microbatches": rng.choice((4, 8)),
        "dp_style": rng.choice(("ddp", "overlapped", "dist_opt")),
    }  # fmt: skip
