"""Incident files: what is put in comes out, and nothing else is ever written."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from comminsight.errors import InputError
from comminsight.format.incident import (
    END,
    MAGIC,
    MANIFEST,
    VERSION,
    IncidentManifest,
    Member,
    is_incident,
    member_of,
    unpack_incident,
    write_incident,
)

FILES = {"run/metadata/a.json": b"{}", "files/1/log of rank 3.txt": b"line\n" * 400_000, "e": b""}
MTIME_NS = 1_700_000_000_123_456_789


def manifest_of(folder: Path, **more: object) -> IncidentManifest:
    for name, data in FILES.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    members = tuple(member_of(folder, name, MTIME_NS) for name in FILES)
    fields = {"magic": MAGIC, "version": VERSION, "made_by": "t", "members": members}
    return IncidentManifest(**(fields | more))


def packed(tmp_path: Path, **more: object) -> Path:
    source, out = tmp_path / "source", tmp_path / "x.tar"
    source.mkdir()
    with out.open("wb") as stream:
        write_incident(stream, source, manifest_of(source, **more))
    return out


def unpacked(tmp_path: Path, path: Path) -> Path:
    target = tmp_path / "target"
    target.mkdir()
    unpack_incident(path, target)
    return target


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


def test_what_is_put_in_comes_out_with_its_times(tmp_path: Path) -> None:
    path = packed(tmp_path)
    assert is_incident(path)
    target = unpacked(tmp_path, path)
    assert everything(target) == FILES
    assert (target / "e").stat().st_mtime_ns == MTIME_NS


def test_other_files_are_no_incidents(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"manifest.json is here")
    with tarfile.open(tmp_path / "o.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("other"))
    found = [is_incident(tmp_path / name) for name in ("t", "o.tar", "nowhere", ".")]
    assert found == [False] * 4


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.99])
def test_one_that_is_cut_short_is_refused(tmp_path: Path, keep: float) -> None:
    path = packed(tmp_path)
    os.truncate(path, int(path.stat().st_size * keep))
    with pytest.raises(InputError, match=r"cut short|does not read|cannot be unpacked"):
        unpacked(tmp_path, path)


def test_one_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"line\nline", b"lime\nline", 1))
    with pytest.raises(InputError, match="is damaged"):
        unpacked(tmp_path, path)


@pytest.mark.parametrize("more", [{"magic": "other"}, {"version": VERSION + 1}])
def test_another_version_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    with pytest.raises(InputError, match="unknown here"):
        unpacked(tmp_path, packed(tmp_path, **more))


def forged(
    tmp_path: Path, name: str, change: Callable[[tarfile.TarInfo], None] = lambda _: None,
    *, size_bytes: int = 4, end: bool = True,
) -> Path:  # fmt: skip
    """A tar whose manifest lists one member of that name, which ``change`` may make odd."""
    data = b"abcd"
    member = Member(
        name=name, size_bytes=size_bytes,
        sha256="88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589",
    )  # fmt: skip
    told = msgspec.json.encode(
        IncidentManifest(magic=MAGIC, version=VERSION, made_by="", members=(member,))
    )
    path = tmp_path / "forged.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for own, content in ((MANIFEST, told), (name, data), (END, b"0" * 64)):
            info = tarfile.TarInfo(own)
            info.size = len(content)
            if own == name:
                change(info)
            if own != END or end:
                tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/passwd", "a/../../out", "a//b", "", ".", "a/.", ".ssh/x", "a\0b", "a\nb",
     "x" * 300, "/".join("d" * 20), "C:/x"],
)  # fmt: skip
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    path = forged(tmp_path, name) if "\0" not in name else forged(tmp_path, name.replace("\0", "%"))
    with pytest.raises(InputError, match="not unpacked"):
        unpacked(tmp_path, path)
    assert everything(tmp_path / "target") == {}


def link(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


def hard_link(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.LNKTYPE, MANIFEST, 0


def device(info: tarfile.TarInfo) -> None:
    info.type, info.size = tarfile.CHRTYPE, 0


def pipe(info: tarfile.TarInfo) -> None:
    info.type, info.size = tarfile.FIFOTYPE, 0


def sparse(info: tarfile.TarInfo) -> None:
    info.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": "1099511627776",
        "GNU.sparse.map": "0,4", "GNU.sparse.numblocks": "1",
    }  # fmt: skip


@pytest.mark.parametrize("change", [link, hard_link, device, pipe, sparse])
def test_only_regular_files_are_taken(
    tmp_path: Path, change: Callable[[tarfile.TarInfo], None]
) -> None:
    with pytest.raises(InputError):
        unpacked(tmp_path, forged(tmp_path, "a/b", change))
    assert everything(tmp_path / "target") == {}


@pytest.mark.parametrize("size_bytes", [-1, 1 << 40])
def test_sizes_that_the_file_cannot_hold_are_refused(tmp_path: Path, size_bytes: int) -> None:
    with pytest.raises(InputError, match=r"not unpacked|cut short"):
        unpacked(tmp_path, forged(tmp_path, "a", size_bytes=size_bytes))


@pytest.mark.parametrize("end", [True, False])
def test_the_end_must_be_that_of_the_manifest(tmp_path: Path, *, end: bool) -> None:
    with pytest.raises(InputError, match=r"end"):
        unpacked(tmp_path, forged(tmp_path, "a", end=end))


def test_a_compressed_tar_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(MANIFEST))
    assert not is_incident(path)
    with pytest.raises(InputError):
        unpacked(tmp_path, path)
