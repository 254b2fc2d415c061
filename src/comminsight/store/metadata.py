"""The metadata document of a run in the archive: what its ranks and communicators were.

``metadata/run.json`` is the newest. Each document that was ever written stays beside it under a
name that follows from its content, object first and then its manifest entry, so that writing one
twice changes nothing and none is lost when roles are told again.
"""

from __future__ import annotations

import hashlib

from comminsight.format.document import document_bytes, read_document
from comminsight.model.metadata import METADATA_SCHEMA_VERSION, RunMetadata
from comminsight.store.archive import Archive
from comminsight.store.events import object_name

FOLDER = "metadata"
NAME = "run.json"
_DIGEST_CHARS = 16
_NEXT_STEP = "delete the file and run `comminsight rebuild`"


def archive_metadata(archive: Archive, prefix: str, document: RunMetadata) -> str:
    """Name of the document, which is the newest now; idempotent. An empty prefix is the root.

    Raises InputError when the archive cannot be written, or holds another document of its name.
    """
    data = document_bytes(document)
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]
    archive.put_evidence(object_name(prefix, FOLDER, f"run-{digest}.json"), data)
    name = object_name(prefix, FOLDER, NAME)
    archive.put(name, data)
    return name


def read_archived_metadata(archive: Archive, prefix: str) -> RunMetadata | None:
    """The newest document; None where there is none, or one of another major version.

    Raises InputError when it is damaged.
    """
    name = object_name(prefix, FOLDER, NAME)
    if not archive.exists(name):
        return None
    document = read_document(archive.get(name), RunMetadata, path=name, next_step=_NEXT_STEP)
    major, ours = (v.partition(".")[0] for v in (document.schema_version, METADATA_SCHEMA_VERSION))
    return document if major == ours else None
