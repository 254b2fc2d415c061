"""The archive: objects under confined, deterministic names. No broker, no database.

Raw evidence is never changed: an object is written first, then its manifest entry with
create-if-absent. Doing the same upload twice changes nothing; another content under the same name
is refused.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
import obstore
import zstandard
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore

from comminsight.errors import InputError
from comminsight.format.document import read_document

ZSTD_LEVEL = 3
MANIFEST_FOLDER = "manifest"
MAX_NAME_CHARS = 1024
MAX_EXPANDED_BYTES = 1 << 32

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,199}", re.ASCII)


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest entry of one object; its presence says that the object is complete."""

    name: str
    size_bytes: int
    sha256: str


class Archive:
    """Objects by name below one root. ``Archive.local(path)`` opens a directory.

    Names are ``/``-separated parts of letters, digits and ``._+=-`` that do not begin with a dot,
    so that no name leads out of the root. Missing objects and other trouble raise InputError.
    """

    def __init__(self, store: LocalStore, root: Path) -> None:
        self._store = store
        self._root = root

    @classmethod
    def local(cls, root: Path | str) -> Archive:
        """The archive in directory ``root``, which is made where it does not exist."""
        path = Path(root)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot be an archive: {error.strerror}"
            raise InputError(message, path=str(path)) from error
        return cls(LocalStore(path), path.resolve())

    def put(self, name: str, data: bytes) -> None:
        """Writes an object whole or not at all, over an earlier one: for derived data."""
        self._put(name, data, is_new=False)

    def put_new(self, name: str, data: bytes) -> bool:
        """Writes an object unless there is one of this name; whether it did."""
        return self._put(name, data, is_new=True)

    def put_evidence(self, name: str, data: bytes) -> ObjectEntry:
        """Writes an object that must never change, then its manifest entry; idempotent.

        Raises InputError when the manifest already names other content.
        """
        entry = ObjectEntry(
            name=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
        )
        stated = self.entry(name)
        if stated is None:
            self._put(name, data, is_new=False)
            self.put_new(_manifest_name(name), msgspec.json.encode(entry))
            stated = self.entry(name)
        if stated != entry:
            raise InputError("holds other content already", path=name)
        return entry

    def entry(self, name: str) -> ObjectEntry | None:
        """The manifest entry of an object, None while it has none."""
        manifest = _manifest_name(name)
        if not self.exists(manifest):
            return None
        return read_document(self.get(manifest), ObjectEntry, path=manifest)

    def get(self, name: str) -> bytes:
        """The bytes of an object."""
        self._confine(name)
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except (BaseError, OSError) as error:
            raise InputError(
                f"cannot be read from the archive: {_line(error)}", path=name
            ) from error

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        self._confine(name)
        try:
            obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise InputError(f"cannot be looked up: {_line(error)}", path=name) from error
        return True

    def list(self, folder: str = "") -> list[str]:
        """Names of all objects below ``folder``, sorted."""
        if folder:
            self._confine(folder)
        try:
            batches = obstore.list(self._store, folder or None)
            return sorted(str(meta["path"]) for batch in batches for meta in batch)
        except (BaseError, OSError) as error:
            raise InputError(f"cannot be listed: {_line(error)}", path=folder) from error

    def path_of(self, name: str) -> Path:
        """Where the object lies in the directory, for readers that take paths."""
        return self._confine(name)

    def _put(self, name: str, data: bytes, *, is_new: bool) -> bool:
        self._confine(name)
        try:
            obstore.put(self._store, name, data, mode="create" if is_new else "overwrite")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise InputError(f"cannot be written: {_line(error)}", path=name) from error
        return True

    def _confine(self, name: str) -> Path:
        """The path of ``name``; a symbolic link in the archive must not lead out of it either."""
        parts = name.split("/")
        if len(name) > MAX_NAME_CHARS or not all(_PART.fullmatch(part) for part in parts):
            raise InputError("is no name of an archive object", path=name[:MAX_NAME_CHARS])
        path = self._root.joinpath(*parts)
        if not path.resolve().is_relative_to(self._root):
            raise InputError("leads out of the archive", path=name)
        return path


def compress(data: bytes) -> bytes:
    """``data`` as one zstd frame; the same bytes give the same frame."""
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compress(data)


def decompress(data: bytes, *, path: str = "") -> bytes:
    """The content of a zstd frame that states its size; InputError otherwise."""
    try:
        size_bytes = zstandard.get_frame_parameters(data).content_size
        if size_bytes > MAX_EXPANDED_BYTES:
            raise InputError("expands to an unknown or too large size", path=path)
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise InputError(f"is no zstd object: {error}", path=path) from error


def _manifest_name(name: str) -> str:
    return f"{MANIFEST_FOLDER}/{name}.json"


def _line(error: BaseException) -> str:
    """The first line of an error; the rest is the library's own debugging."""
    return str(error).partition("\n")[0]
