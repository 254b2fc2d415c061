"""JSON documents from files: whatever may be wrong with one, as one error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from comminsight.errors import InputError

Document = TypeVar("Document")

# what decoding raises for bytes from outside: not JSON, not of its kind, nested without end
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def document_bytes(document: msgspec.Struct) -> bytes:
    """The document as people may read it; the same document gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read_document(
    data: bytes | bytearray, kind: type[Document], *, path: str = "", next_step: str = ""
) -> Document:
    """The document in ``data``; raises InputError naming the file when it is none of this kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise InputError(f"does not read: {error}", path=path, next_step=next_step) from error
