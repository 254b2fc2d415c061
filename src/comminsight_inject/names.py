"""A description for a group: user map -> given description -> caller's frame -> ``undefined``."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

UNDEFINED = "undefined"
_MAX_FRAMES = 12

# (part of the file name, function) of callers that create groups without a description.
_CALLERS = {
    ("deepspeed", "_init_tp_groups_with_new_group"): "tp",
    ("deepspeed", "_clone_world_group"): "global",
    ("deepspeed", "_get_local_all_to_all_group"): "ep_node",
    ("deepspeed", "_create_zero_param_parallel_group"): "zero_hpz",
    ("deepspeed", "create_mics_comm_groups"): "mics",
    ("deepspeed", "init_process_groups"): "pp",
}
# Callers that create two families of groups: (ranks in a row, ranks with a stride).
_CALLERS_BY_SHAPE = {
    ("deepspeed", "_create_model_parallel"): ("mp", "dp"),
    ("deepspeed", "_create_expert_and_data_parallel"): ("ep", "edp"),
    ("deepspeed", "initialize_sequence_parallel"): ("sp", "dp"),
}


def parse_group_map(text: str) -> Dict[str, str]:
    """``"name=desc;name=desc"`` as a dict; parts without ``=`` are passed over."""
    pairs = (part.partition("=") for part in text.split(";") if "=" in part)
    return {name.strip(): desc.strip() for name, _, desc in pairs if name.strip()}


def describe_group(
    group_map: Dict[str, str], name: str, desc: Optional[str], ranks: Sequence[int], frame: Any
) -> str:
    """The description to give to a group. ``group_map`` is keyed by name or given description."""
    for key in (name, desc or UNDEFINED):
        if group_map.get(key):
            return group_map[key]
    if desc and desc != UNDEFINED:
        return desc
    return _from_callers(frame, ranks) or UNDEFINED


def _from_callers(frame: Any, ranks: Sequence[int]) -> Optional[str]:
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        desc = _from_caller(frame, ranks)
        if desc:
            return desc
        frame = frame.f_back
    return None


def _from_caller(frame: Any, ranks: Sequence[int]) -> Optional[str]:
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    if function == "__init__" and type(frame.f_locals.get("self")).__name__ == "GroupCoordinator":
        coordinator_name = frame.f_locals.get("group_name")
        return coordinator_name if isinstance(coordinator_name, str) else None
    for (part, name), desc in _CALLERS.items():
        if function == name and part in file:
            return desc
    for (part, name), (in_a_row, strided) in _CALLERS_BY_SHAPE.items():
        if function == name and part in file and len(ranks) > 1:
            return in_a_row if ranks[-1] - ranks[0] == len(ranks) - 1 else strided
    if "checkpoint" in file:
        return "checkpoint"
    return None


def compress_ranks(ranks: Sequence[int]) -> str:
    """Global ranks in group order, runs as ranges: ``[0, 1, 2, 8, 10, 12] -> "0-2,8-12:2"``."""
    parts = []
    start = 0
    while start < len(ranks):
        stop = _run_end(ranks, start)
        first, last, length = ranks[start], ranks[stop - 1], stop - start
        step = ranks[start + 1] - first if length > 1 else 0
        if step == 1:
            parts.append("%d-%d" % (first, last))
        elif length > 2:
            parts.append("%d-%d:%d" % (first, last, step))
        else:  # a pair at a distance stands alone: its second may begin a run
            parts.append(str(first))
            stop = start + 1
        start = stop
    return ",".join(parts)


def _run_end(ranks: Sequence[int], start: int) -> int:
    """Index after the last rank of the run of constant, growing step that begins at ``start``."""
    end = start + 1
    if end < len(ranks) and ranks[end] > ranks[start]:
        step = ranks[end] - ranks[start]
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
    return end
