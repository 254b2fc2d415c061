"""What a communicator is for, from the name its framework gave it.

The tables hold the descriptions of Megatron-LM, of device meshes (FSDP2, DTensor, torchtitan), of
SGLang (``<name>:device``, ``<name>:cpu``) and short names that people give themselves. A name that
is in no table stays UNKNOWN; only a communicator of the whole world is recognised without a name,
and is then marked inferred.
"""

from __future__ import annotations

import re

from comminsight.model.ops import Backend, CommRole

_MEGATRON = {
    "TENSOR_MODEL_PARALLEL_GROUP": CommRole.TP,
    "PIPELINE_MODEL_PARALLEL_GROUP": CommRole.PP,
    "DATA_PARALLEL_GROUP": CommRole.DP,
    "DATA_PARALLEL_GROUP_WITH_CP": CommRole.DP,
    "DATA_PARALLEL_GROUP_WITH_CP_AG": CommRole.DP,
    "DATA_PARALLEL_GROUP_WITH_GTP_REMAT": CommRole.DP,
    "DATA_PARALLEL_GROUP_WITH_CP_WITH_GTP_REMAT": CommRole.DP,
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": CommRole.DP_SHARD,
    "INTER_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": CommRole.DP_REPLICATE,
    "CONTEXT_PARALLEL_GROUP": CommRole.CP,
    "MODEL_PARALLEL_GROUP": CommRole.MP,
    "EMBEDDING_GROUP": CommRole.EMB,
    "POSITION_EMBEDDING_GROUP": CommRole.EMB,
    "EXPERT_MODEL_PARALLEL_GROUP": CommRole.EP,
    "EXPERT_TENSOR_PARALLEL_GROUP": CommRole.TP,
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": CommRole.EP,
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": CommRole.MP,
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP": CommRole.MP,
    "EXPERT_DATA_PARALLEL_GROUP": CommRole.EDP,
    "EXPERT_DATA_PARALLEL_GROUP_AG": CommRole.EDP,
    "EXPERT_DATA_PARALLEL_GROUP_WITH_GTP_REMAT": CommRole.EDP,
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": CommRole.DIST_OPT,
}

_MEGATRON_NUMBERED = (
    (re.compile(r"HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L\d+"), CommRole.CP),
    (re.compile(r"HYBRID_DP_CP_GROUP_\d+"), CommRole.CP),
    (re.compile(r"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L\d+"), CommRole.EDP),
)

_SHORT = {
    "default_pg": CommRole.GLOBAL,
    "default": CommRole.GLOBAL,
    "world": CommRole.GLOBAL,
    "global": CommRole.GLOBAL,
    "dp": CommRole.DP,
    "data": CommRole.DP,
    "data_parallel": CommRole.DP,
    "batch": CommRole.DP,
    "dp_cp": CommRole.DP,
    "dp_shard": CommRole.DP_SHARD,
    "dp_shard_cp": CommRole.DP_SHARD,
    "fsdp": CommRole.DP_SHARD,
    "shard": CommRole.DP_SHARD,
    "dp_replicate": CommRole.DP_REPLICATE,
    "replicate": CommRole.DP_REPLICATE,
    "tp": CommRole.TP,
    "tensor": CommRole.TP,
    "tensor_parallel": CommRole.TP,
    "pp": CommRole.PP,
    "pipe": CommRole.PP,
    "pipeline": CommRole.PP,
    "pipeline_parallel": CommRole.PP,
    "ep": CommRole.EP,
    "moe_ep": CommRole.EP,
    "expert": CommRole.EP,
    "expert_parallel": CommRole.EP,
    "dp_shard_in_ep": CommRole.EP,
    "edp": CommRole.EDP,
    "efsdp": CommRole.EDP,
    "dp_shard_mod_ep": CommRole.EDP,
    "cp": CommRole.CP,
    "sp": CommRole.CP,
    "context": CommRole.CP,
    "sequence_parallel": CommRole.CP,
    "mp": CommRole.MP,
    "model_parallel": CommRole.MP,
    "embd": CommRole.EMB,
    "embedding": CommRole.EMB,
    "dist_opt": CommRole.DIST_OPT,
    "loss": CommRole.LOSS,
    "loss_mesh": CommRole.LOSS,
}

_SPLIT = re.compile(r":split:\d+")
_DEFAULT_GROUP_NAME = "0"  # torch names the default group so and counts the others from 1


def role_of(
    name: str, desc: str, backend: Backend | int, comm_size: int, world_size: int
) -> tuple[CommRole, bool]:
    """The role, and whether it is inferred (not given by a name). Unknown sizes are -1.

    ``desc`` goes before ``name``, since torch names groups by number. A name of the default group
    on a communicator of another size than the world belongs to a pair or a split of it: UNKNOWN.
    A gloo helper beside NCCL groups (``…_GLOO``, ``…:cpu``) is CPU. ``backend`` is not evidence by
    itself: a job may train over gloo.
    """
    is_world = world_size > 1 and comm_size == world_size
    named = _by_text(desc) or _by_text(name)
    if named is None and not desc and name == _DEFAULT_GROUP_NAME:
        named = CommRole.GLOBAL
    if named is CommRole.GLOBAL and world_size > 0 and comm_size not in {world_size, -1, 0}:
        named = None
    if named is not None:
        return named, False
    if is_world and backend != Backend.UNKNOWN:
        return CommRole.GLOBAL, True
    return CommRole.UNKNOWN, True


def _by_text(text: str) -> CommRole | None:
    if not text or _SPLIT.search(text):
        return None  # a split is not what its parent is
    word, _, tail = text.strip().partition(":")
    if tail == "cpu" or word.upper().endswith("_GLOO"):
        return CommRole.CPU
    upper, lower = word.upper(), word.lower().removeprefix("mesh_")
    for pattern, role in _MEGATRON_NUMBERED:
        if pattern.fullmatch(upper):
            return role
    return _MEGATRON.get(upper) or _SHORT.get(lower)
