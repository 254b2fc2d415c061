"""Template files: what is read, and what is refused with its place."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.model.ops import CommRole, Op
from comminsight.semantics.template import Peer, Symbol, parse_template_file, sequence_label
from tests.unit.semantics.shipped import FILES, shipped_templates

GOOD = """
file_version = 1
[[template]]
name = "x"
version = 3
priority = 7
requires = [{ op = "ALL_REDUCE" }, [{ op = "SEND" }, [{ op = "RECV" }, { role = ["TP", "PP"] }]]]
open = [{ op = "send", peer = "next" }, {}]
anchor = "close"
close = [{ role = "GLOBAL", op = "ALL_REDUCE", count = 1, max_bytes = 8 }]
"""


def parse(text: str) -> Any:
    return parse_template_file(tomllib.loads(text), "t.toml").templates[0]


def test_every_form_of_a_sequence_is_read() -> None:
    template = parse(GOOD)
    assert (template.version, template.priority, template.file_version) == (3, 7, 1)
    send = Symbol(ops=(Op.SEND,), peer=Peer.NEXT)
    assert template.opens == (((send,), (Symbol(),)),)
    assert template.anchors == template.closes
    assert [len(sequence) for sequence in template.requires] == [1, 2]
    assert template.requires[1][1][1].roles == (CommRole.TP, CommRole.PP)
    assert sequence_label(template.closes[0]) == "all_reduce@GLOBAL <=8B count=1"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("file_version = 1", "file_version = 2", "file_version 2"),
        ("file_version = 1", "file_version = 1\nextra = 1", "unknown key 'extra'"),
        ("priority = 7", "prioriti = 7", "template 'x': unknown key 'prioriti'"),
        ("priority = 7", "priority = true", "priority must be a whole number"),
        ("version = 3", "version = 0", "version must be"),
        ('op = "send"', 'op = "sent"', "open: op: unknown word 'sent'"),
        ('op = "send"', 'opp = "send"', "open: unknown key 'opp'"),
        ('anchor = "close"', "anchor = []", "anchor: a list of positions"),
        ("close = [", "closed = [", "unknown key 'closed'"),
        ('name = "x"', "", "without a name"),
        ("max_bytes = 8", "max_bytes = -2", "max_bytes must be"),
        ('anchor = "close"', 'learn = "magic"', "learn: unknown word"),
    ],
)
def test_a_wrong_file_names_the_place(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=r"t\.toml") as caught:
        parse(GOOD.replace(old, new, 1))
    assert complaint in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize(
    "document", [{}, {"file_version": 1}, {"file_version": 1, "template": [3]}]
)
def test_a_document_without_templates_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        parse_template_file(document)


def test_a_template_that_could_never_end_a_step_is_refused() -> None:
    with pytest.raises(InputError, match="no step could end"):
        parse('file_version = 1\n[[template]]\nname = "x"\nversion = 1\nopen = [{}]\n')


def test_the_shipped_files_parse_and_their_names_differ() -> None:
    names = [template.name for template in shipped_templates()]
    assert {path.name for path in FILES} >= {"ddp.toml", "fsdp2.toml", "tp_pp_dp.toml"}
    assert len(set(names)) == len(names)
