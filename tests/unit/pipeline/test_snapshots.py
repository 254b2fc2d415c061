"""Snapshot files: whole or refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from comminsight.errors import FormatError, InputError
from comminsight.pipeline.snapshots import (
    MAGIC,
    SessionSnapshot,
    read_snapshot,
    snapshot_path,
    template_digest,
    write_snapshot,
)
from comminsight.semantics.engine import SessionEngine
from tests.builders import comm_row, identity
from tests.builders.records import Stream
from tests.unit.semantics.shipped import shipped_templates

TEMPLATES = shipped_templates()


def snapshot() -> SessionSnapshot:
    engine = SessionEngine(TEMPLATES, None, identity(0, 8))
    engine.add_comms(comm_row())
    stream = Stream()
    for i in range(50):
        stream.allreduce(10.0 * i + 1)
    engine.push(stream.batch())
    return SessionSnapshot(
        engine=engine.snapshot(), delivered_seq=50, n_steps=0, steps_bytes=0,
        templates=template_digest(TEMPLATES),
    )  # fmt: skip


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    path = snapshot_path(tmp_path / "new" / "folder", "b007-1-2")
    assert read_snapshot(path) is None
    write_snapshot(path, snapshot())
    write_snapshot(path, snapshot())
    assert read_snapshot(path) == snapshot()
    assert [p.name for p in path.parent.iterdir()] == ["b007-1-2.cisnap"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "the header is cut short (at byte 0)"),
        (lambda data: data[:20], "the header is cut short (at byte 20)"),
        (lambda data: b"PK\3\4" + data[4:], "is no engine snapshot"),
        (lambda data: MAGIC + b"\2\0\0\0" + data[12:], "snapshot version 2 is not 1"),
        (lambda data: data[:-1], "bytes of payload where the header says"),
        (lambda data: data + b"\0", "bytes of payload where the header says"),
        (lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], "the checksum is wrong"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path: Path, damage, says: str) -> None:  # type: ignore[no-untyped-def]
    path = snapshot_path(tmp_path, "b007-1-2")
    write_snapshot(path, snapshot())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FormatError, match=r"b007-1-2\.cisnap: ") as caught:
        read_snapshot(path)
    assert says in str(caught.value)
    assert "rebuilt" in caught.value.next_step


def test_a_payload_of_another_form_is_refused(tmp_path: Path) -> None:
    path = snapshot_path(tmp_path, "x")
    other = msgspec.structs.replace(snapshot(), n_steps="many")
    write_snapshot(path, other)
    with pytest.raises(FormatError, match="the payload does not read"):
        read_snapshot(path)


def test_a_place_that_cannot_be_written_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written") as caught:
        write_snapshot(snapshot_path(tmp_path / "file", "x"), snapshot())
    assert caught.value.next_step


def test_the_digest_tells_sets_of_templates_apart() -> None:
    first = TEMPLATES[0]
    newer = msgspec.structs.replace(first, version=first.version + 1)
    assert template_digest(TEMPLATES) == template_digest(tuple(reversed(TEMPLATES)))
    assert template_digest(TEMPLATES) != template_digest(TEMPLATES[1:])
    assert template_digest(TEMPLATES) != template_digest((newer, *TEMPLATES[1:]))
