"""Template files: what is read, and what is refused with its place."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.model.ops import CommRole, Op
from comminsight.semantics.template import Peer, Symbol, sequence_label
from comminsight.semantics.template_file import parse_template_file
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
is_anchor_proof = true
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


def complaint_about(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_template_file(tomllib.loads(text), "t.toml", text)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "complaint"),
    [
        ("file_version = 1", "file_version = 2", 2, "file_version 2 is not 1"),
        ("file_version = 1", "file_version = 1\nextra = 1", 3, "unknown key 'extra'"),
        ("priority = 7", "prioriti = 7", 6, "template 'x': unknown key 'prioriti'"),
        ("priority = 7", "priority = true", 6, "priority must be a whole number"),
        ("version = 3", "version = 0", 5, "version must be"),
        ("version = 3", "", 3, "version must be"),
        ('op = "send"', 'op = "sent"', 8, "open: op: unknown word 'sent'"),
        ('op = "send"', 'opp = "send"', 8, "open: unknown key 'opp'"),
        ('anchor = "close"', "anchor = []", 9, "anchor: a list of positions"),
        ("close = [", "closed = [", 10, "unknown key 'closed'"),
        ('name = "x"', "", 3, "without a name"),
        ("max_bytes = 8", "max_bytes = -2", 10, "max_bytes must be"),
        ("max_bytes = 8", f"max_bytes = {10**23}", 10, "max_bytes must be at most 2^62"),
        ("priority = 7", f"priority = {2**62 + 1}", 6, "priority must be at most 2^62"),
        ('anchor = "close"', 'learn = "magic"', 9, "unknown word 'magic'"),
        ('anchor = "close"', 'learn = "in_flight"', 10, "close is learnt"),
        ("is_anchor_proof = true", "is_anchor_proof = 1", 11, "must be true or false"),
        ("count = 1, max", 'peer = "next", max', 9, "anchor is unreachable"),  # no P2P op
        ("max_bytes = 8", "min_bytes = 9, max_bytes = 8", 9, "no op can fit"),
        ("priority = 7", 'forbids = [{ role = "GLOBAL" }]', 9, "forbids rules out any@GLOBAL"),
        ("priority = 7", 'forbids = [[{ op = "SEND" }, {}]]', 8, "open is unreachable"),
        ("priority = 7", 'forbids = [{ op = "ALL_REDUCE" }]', 9, "anchor is unreachable"),
        (
            'anchor = "close"',
            'anchor = [{ role = "GLOBAL", op = "ALL_REDUCE", count = 1, max_bytes = 4 }, {}]',
            9,
            "anchor is unreachable: close is complete before it",
        ),
    ],
)
def test_a_wrong_file_names_the_line_and_what_to_do(
    old: str, new: str, line: int, complaint: str
) -> None:
    assert old in GOOD
    error = complaint_about(GOOD.replace(old, new, 1))
    assert str(error).startswith(f"t.toml:{line}: ")
    assert complaint in str(error)
    assert error.next_step


def test_the_line_is_that_of_the_template_at_fault_and_of_the_nested_key() -> None:
    second = GOOD.replace("file_version = 1", "").replace('name = "x"', 'name = "y"')
    second = second.replace("close = [", "close = [\n  ").replace("max_bytes = 8", "max_byte = 8")
    error = complaint_about(GOOD + second)
    assert str(error).startswith("t.toml:22: template 'y': close: unknown key 'max_byte'")


def test_two_templates_of_one_name_are_refused() -> None:
    error = complaint_about(GOOD + GOOD.replace("file_version = 1", ""))
    assert str(error).startswith("t.toml:15: ")


def test_templates_as_inline_tables_have_no_line_but_an_error() -> None:
    text = 'file_version = 1\ntemplate = [{ name = "x", version = 1, open = [{ op = "x" }] }]'
    assert str(complaint_about(text)).startswith("t.toml: template 'x': open: op: unknown word")


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
