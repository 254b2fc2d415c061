"""The topology key of a template file: what is read, and what is refused where."""

from __future__ import annotations

import pytest

from comminsight.errors import InputError
from comminsight.model.ops import CommRole
from comminsight.pipeline.templates import parse
from comminsight.semantics.template import GroupRule, Topology

TEXT = """file_version = 1
[[template]]
name = "t"
version = 1
topology = TOPOLOGY
open = [{ op = "BROADCAST" }]
close = [{ op = "ALL_REDUCE" }]
"""


def read(topology: str) -> Topology:
    (template,) = parse("own.toml", TEXT.replace("TOPOLOGY", topology))
    return template.topology


@pytest.mark.parametrize(
    ("text", "topology"),
    [
        ("{}", Topology()),
        ("{ min_world = 8, max_world = 64 }", Topology(min_world=8, max_world=64)),
        ('{ groups = [{ role = "PP" }] }', Topology(groups=(GroupRule(CommRole.PP),))),
        (
            '{ groups = [{ role = "TP", min_size = 2, max_size = 8 }, { role = "dp" }] }',
            Topology(groups=(GroupRule(CommRole.TP, 2, 8), GroupRule(CommRole.DP))),
        ),
    ],
)
def test_a_topology_is_read(text: str, topology: Topology) -> None:
    assert read(text) == topology


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{ world = 8 }", "unknown key 'world'"),
        ("7", "a table is expected, not int"),
        ("{ min_world = -1 }", "min_world must be a whole number"),
        ("{ min_world = 9, max_world = 8 }", "min_world exceeds max_world: no job can fit"),
        ('{ groups = { role = "PP" } }', "groups must be a list of tables"),
        ("{ groups = [{ min_size = 2 }] }", "a group needs one role"),
        ('{ groups = [{ role = ["PP", "TP"] }] }', "a group needs one role"),
        ('{ groups = [{ role = "QQ" }] }', "unknown word 'QQ'"),
        ('{ groups = [{ role = "PP", size = 2 }] }', "unknown key 'size'"),
        ('{ groups = [{ role = "PP", min_size = 3, max_size = 2 }] }', "min_size exceeds max_size"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"own\.toml:5: template 't': topology") as caught:
        read(text)
    assert says in str(caught.value)
    assert caught.value.next_step
