from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from comminsight.errors import InputError
from comminsight.model.layout import LayoutProblem, ParallelLayout
from comminsight.model.metadata import METADATA_SCHEMA_VERSION, RunMetadata
from comminsight.store.archive import Archive
from comminsight.store.metadata import archive_metadata, read_archived_metadata

PREFIX = "jobs/j/runs/r"
DOCUMENT = RunMetadata(
    schema_version=METADATA_SCHEMA_VERSION, run_id="r", world_size=2, hosts={"node0": "0-1"},
    ranks=(), communicators=(),
    layout=ParallelLayout(
        world_size=2, is_complete=False, problem=LayoutProblem.NOTHING, unexplained_factor=2,
        dimensions=(),
    ),
)  # fmt: skip
AGAIN = msgspec.structs.replace(DOCUMENT, hosts={"node0": "0", "node1": "1"})


@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_the_newest_document_is_read_and_none_is_lost(tmp_path: Path, prefix: str) -> None:
    archive = Archive.local(tmp_path)
    assert read_archived_metadata(archive, prefix) is None
    name = archive_metadata(archive, prefix, DOCUMENT)
    assert name == (f"{prefix}/" if prefix else "") + "metadata/run.json"
    first = {found: archive.get(found) for found in archive.list()}
    assert archive_metadata(archive, prefix, DOCUMENT) == name
    assert {found: archive.get(found) for found in archive.list()} == first
    archive_metadata(archive, prefix, AGAIN)
    assert read_archived_metadata(archive, prefix) == AGAIN
    kept = [found for found in archive.list() if found.startswith(name.removesuffix(".json"))]
    assert sum(archive.get(found) == first[name] for found in kept) == 1
    assert all(archive.entry(found) for found in kept if found != name)


def test_an_upload_that_broke_off_is_completed(tmp_path: Path) -> None:
    """The document was written whole or in part, its manifest entry and the newest were not."""
    archive = Archive.local(tmp_path)
    name = archive_metadata(archive, PREFIX, DOCUMENT)
    (own,) = (n for n in archive.list(f"{PREFIX}/metadata") if n != name)
    archive.put(own, archive.get(own)[:10])
    for lost in (name, f"manifest/{own}.json"):
        archive.path_of(lost).unlink()
    archive_metadata(archive, PREFIX, DOCUMENT)
    assert archive.get(own) == archive.get(name)
    assert read_archived_metadata(archive, PREFIX) == DOCUMENT
    assert archive.entry(own) is not None


def test_a_damaged_document_is_named_and_one_of_another_version_is_none(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    name = archive_metadata(archive, PREFIX, DOCUMENT)
    archive_metadata(archive, PREFIX, msgspec.structs.replace(DOCUMENT, schema_version="999.0.0"))
    assert read_archived_metadata(archive, PREFIX) is None
    archive.put(name, archive.get(name)[:50])
    with pytest.raises(InputError, match=r"run\.json: does not read"):
        read_archived_metadata(archive, PREFIX)
