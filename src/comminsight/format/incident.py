"""Incident files: one plain tar, its manifest first, an end last.

    manifest.json   magic, version, what made it, size and SHA-256 of every member
    run/… files/…   the members, in the order of the manifest
    END             SHA-256 of the manifest: nothing is missing

A reader takes regular files with the names that the manifest lists and nothing else: no links, no
devices, no sparse files, no way out of its folder. The tar is not compressed, so that what is
unpacked is never larger than the file.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.format.document import document_bytes, read_document
from comminsight.format.regular_file import open_regular, read_regular

MAGIC = "comminsight-incident"
VERSION = 1
MANIFEST, END = "manifest.json", "END"
MAX_MANIFEST_BYTES = 64 << 20
MAX_MEMBERS = 200_000
MAX_DEPTH = 12
PIECE_BYTES = 1 << 20
NEXT_STEP = "copy the file again, or make a new one with `comminsight incident`"

_PART = re.compile(r"[\w@+=,~-][\w.@+=,~ -]{0,199}")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an incident; ``mtime_ns`` is when what it was made from was last written."""

    name: str
    size_bytes: int
    sha256: str
    mtime_ns: int = 0


class IncidentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an incident file says of itself.

    ``masked`` counts the names that were replaced, by kind; empty where names were kept.
    ``left_out`` counts files that are not in it, by reason. ``verdicts`` are the causes that were
    found when it was made, the first first.
    """

    magic: str
    version: int
    made_by: str
    members: tuple[Member, ...]
    is_masked: bool = True
    masked: dict[str, int] = {}
    left_out: dict[str, int] = {}
    verdicts: tuple[str, ...] = ()


def is_incident(path: Path) -> bool:
    """Whether the file begins as one does; False for what is no regular file."""
    try:
        head = read_regular(path, 512) or b""
    except OSError:
        return False
    return head.startswith(MANIFEST.encode() + b"\0") and head[257:262] == b"ustar"


def member_of(folder: Path, name: str, mtime_ns: int) -> Member:
    """The manifest's line on a file below ``folder``."""
    digest = hashlib.sha256()
    with (folder / name).open("rb") as stream:
        while piece := stream.read(PIECE_BYTES):
            digest.update(piece)
        size_bytes = stream.tell()
    return Member(name=name, size_bytes=size_bytes, sha256=digest.hexdigest(), mtime_ns=mtime_ns)


def write_incident(stream: BinaryIO, folder: Path, manifest: IncidentManifest) -> None:
    """The tar of the members below ``folder``."""
    data = document_bytes(manifest)
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _put(tar, MANIFEST, data)
        for member in manifest.members:
            info = tarfile.TarInfo(member.name)
            info.size, info.mtime = member.size_bytes, member.mtime_ns // 1_000_000_000
            with (folder / member.name).open("rb") as content:
                tar.addfile(info, content)
        _put(tar, END, hashlib.sha256(data).hexdigest().encode() + b"\n")


def _put(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def unpack_incident(path: Path, target: Path) -> IncidentManifest:
    """Writes the members below ``target``, an empty folder that exists, with their times.

    Raises InputError for what is no incident file of a known version, for one that is cut short or
    damaged, and for members that the manifest does not name as they are.
    """
    try:
        opened = open_regular(path)
        if opened is None:
            raise _bad("is no file", path)
        with opened as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            manifest, digest = _manifest(tar, path)
            for member in manifest.members:
                _unpack(tar, member, target, path)
            _check_end(tar, digest, path)
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise _bad(f"does not read as a tar: {error}", path) from error
    except OSError as error:
        raise _bad(f"cannot be unpacked: {error.strerror or error}", path) from error
    return manifest


def _manifest(tar: tarfile.TarFile, path: Path) -> tuple[IncidentManifest, str]:
    info = tar.next()
    if info is None or info.name != MANIFEST or not _is_plain(info):
        raise _bad("is no incident file: it does not begin with a manifest", path)
    if info.size > MAX_MANIFEST_BYTES:
        raise _bad("has a manifest that is too large", path)
    data = _content(tar, info).read(info.size)
    manifest = read_document(data, IncidentManifest, path=str(path), next_step=NEXT_STEP)
    if manifest.magic != MAGIC or manifest.version != VERSION:
        said = f"is of format {manifest.magic[:40]!r} {manifest.version}, which is unknown here"
        raise InputError(said, path=str(path), next_step="read it with a newer comminsight")
    _check_names(manifest.members, path)
    return manifest, hashlib.sha256(data).hexdigest()


def _check_names(members: Iterable[Member], path: Path) -> None:
    """Every name once, each a way down, and all together no larger than the file."""
    seen: set[str] = set()
    left_bytes = path.stat().st_size
    for member in members:
        parts = member.name.split("/")
        is_safe = len(parts) <= MAX_DEPTH and all(map(_PART.fullmatch, parts))
        left_bytes -= member.size_bytes
        is_new = member.name not in seen and len(seen) < MAX_MEMBERS
        if not is_safe or not is_new or member.size_bytes < 0:
            raise _bad(f"lists a member that is not unpacked: {member.name[:80]!r}", path)
        if left_bytes < 0:
            raise _bad("is cut short: its members are larger than it is", path)
        seen.add(member.name)


def _unpack(tar: tarfile.TarFile, member: Member, target: Path, path: Path) -> None:
    info = tar.next()
    is_it = info is not None and info.name == member.name and info.size == member.size_bytes
    if info is None or not is_it or not _is_plain(info):
        raise _bad(f"is cut short or damaged at {member.name!r}", path)
    place = target / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    digest, source = hashlib.sha256(), _content(tar, info)
    with place.open("xb") as out:
        while piece := source.read(PIECE_BYTES):
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != member.sha256:
        raise _bad(f"is damaged: {member.name!r} is not what was put in", path)
    if 0 < member.mtime_ns < 1 << 62:
        os.utime(place, ns=(member.mtime_ns, member.mtime_ns))


def _check_end(tar: tarfile.TarFile, digest: str, path: Path) -> None:
    info = tar.next()
    if info is None or info.name != END or not _is_plain(info) or info.size > 128:
        raise _bad("is cut short: it has no end, or more than its manifest lists", path)
    if _content(tar, info).read(128).strip() != digest.encode():
        raise _bad("is damaged: its end is not that of its manifest", path)


def _is_plain(info: tarfile.TarInfo) -> bool:
    return info.isreg() and not info.issparse()


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    found = tar.extractfile(info)
    if found is None:
        raise tarfile.TarError(f"no content in {info.name!r}")
    return found


def _bad(message: str, path: Path) -> InputError:
    return InputError(message, path=str(path), next_step=NEXT_STEP)
