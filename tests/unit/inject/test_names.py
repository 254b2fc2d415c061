import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.model.ranges import range_expand
from comminsight_inject import names


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("", {}), ("3=TP", {"3": "TP"}), ("a=b; c = d ;junk;=x", {"a": "b", "c": "d"})],
)
def test_group_map(text, pairs):
    assert names.parse_group_map(text) == pairs


@pytest.mark.parametrize(
    ("group_map", "desc", "expected"),
    [
        ({"7": "tp"}, "mesh_x", "tp"),
        ({"mesh_x": "dp"}, "mesh_x", "dp"),
        ({}, "mesh_x", "mesh_x"),
        ({}, None, "undefined"),
        ({}, "undefined", "undefined"),
    ],
)
def test_map_before_given_before_undefined(group_map, desc, expected):
    assert names.describe_group(group_map, "7", desc, [0, 1], None) == expected


def called_from(file: str, source: str, **variables):
    """What a function of ``file`` gets as the frame that called for a group."""
    space = {"sys": sys, **variables}
    exec(compile(source, file, "exec"), space)  # noqa: S102 - our own source, a chosen file name
    return space["result"]


@pytest.mark.parametrize(
    ("file", "function", "ranks", "expected"),
    [
        ("/x/deepspeed/utils/groups.py", "_clone_world_group", [0, 1], "global"),
        ("/x/deepspeed/utils/groups.py", "_create_model_parallel", [0, 1], "mp"),
        ("/x/deepspeed/utils/groups.py", "_create_model_parallel", [0, 2], "dp"),
        ("/x/mine/groups.py", "_clone_world_group", [0, 1], "undefined"),
        ("/x/torch/distributed/checkpoint/api.py", "save", [0, 1], "checkpoint"),
    ],
)
def test_description_from_the_calling_function(file, function, ranks, expected):
    source = f"def {function}():\n    return sys._getframe(0)\nresult = {function}()"
    frame = called_from(file, source)
    assert names.describe_group({}, "1", None, ranks, frame) == expected


def test_coordinator_names_its_group():
    source = (
        "class GroupCoordinator:\n"
        "    def __init__(self, group_name):\n"
        "        self.frame = sys._getframe(0)\n"
        "result = GroupCoordinator('tp').frame\n"
    )
    frame = called_from("/x/vllm/parallel_state.py", source)
    assert names.describe_group({}, "1", None, [0, 1], frame) == "tp"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0, 1, 2, 5], "0-2,5"),
        (list(range(0, 4096, 8)), "0-4088:8"),
        ([4, 6], "4,6"),
        ([3, 1], "3,1"),
        ([], ""),
    ],
)
def test_compressed_ranks(ranks, text):
    assert names.compress_ranks(ranks) == text


@given(st.lists(st.integers(0, 5000) | st.integers(0, 9), unique=True, max_size=60))
def test_compressed_ranks_expand_to_the_same_list(ranks):
    assert range_expand(names.compress_ranks(ranks)) == ranks
