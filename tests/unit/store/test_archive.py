from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.store.archive import Archive, compress, decompress


def test_objects_come_back_by_name(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path / "new" / "root")
    archive.put("jobs/j/a.json", b"1")
    archive.put("jobs/j/b/c.bin", b"\0\xff")
    archive.put("jobs/j/a.json", b"2")
    assert archive.get("jobs/j/a.json") == b"2"
    assert archive.list() == ["jobs/j/a.json", "jobs/j/b/c.bin"]
    assert archive.list("jobs/j/b") == ["jobs/j/b/c.bin"]
    assert archive.list("nothing") == []
    assert (archive.exists("jobs/j/a.json"), archive.exists("jobs/j")) == (True, False)
    assert archive.path_of("jobs/j/a.json").read_bytes() == b"2"


def test_put_new_keeps_what_is_there(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    assert archive.put_new("a", b"first")
    assert not archive.put_new("a", b"second")
    assert archive.get("a") == b"first"


def test_evidence_may_be_put_twice_but_not_changed(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path)
    entry = archive.put_evidence("runs/r/seg.zst", b"raw")
    assert archive.put_evidence("runs/r/seg.zst", b"raw") == entry
    assert archive.entry("runs/r/seg.zst") == entry
    with pytest.raises(InputError, match="other content"):
        archive.put_evidence("runs/r/seg.zst", b"forged")
    assert archive.get("runs/r/seg.zst") == b"raw"


def test_an_upload_that_broke_off_is_completed(tmp_path: Path) -> None:
    """The object was written whole or in part, its manifest entry was not."""
    archive = Archive.local(tmp_path)
    archive.put("seg", b"ra")
    assert archive.entry("seg") is None
    archive.put_evidence("seg", b"raw")
    assert archive.get("seg") == b"raw"


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../x", "a/../../x", "a//b", ".hidden", "a/.git", "a\\b", "a\0b", "a b",
     "a%2e", "x" * 300, "a/" * 700 + "b", "ä"],
)  # fmt: skip
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    archive = Archive.local(tmp_path / "root")
    for call in (archive.get, archive.exists, archive.path_of, lambda n: archive.put(n, b"")):
        with pytest.raises(InputError, match="no name of an archive object"):
            call(name)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_link_out_of_the_archive_is_not_followed(tmp_path: Path) -> None:
    archive = Archive.local(tmp_path / "root")
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="leads out"):
        archive.put("link/a", b"x")
    assert list((tmp_path / "outside").iterdir()) == []


def test_missing_objects_and_bad_roots_are_input_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        Archive.local(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be read"):
        Archive.local(tmp_path).get("none")


def test_compression_is_deterministic_and_checked() -> None:
    data = b"record" * 1000
    assert compress(data) == compress(data)
    assert decompress(compress(data)) == data
    broken = bytearray(compress(data))
    broken[-1] ^= 1
    for hostile in (bytes(broken), b"", b"no zstd"):
        with pytest.raises(InputError):
            decompress(hostile)
