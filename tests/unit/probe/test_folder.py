"""Folders as they are met on real machines: foreign, open, closed, full."""

import os
from pathlib import Path

import pytest

from comminsight.probe.folder import FolderKind, look_at


def test_a_folder_of_ours(tmp_path):
    tmp_path.chmod(0o700)
    seen = look_at(tmp_path)
    assert (seen.kind, seen.is_own, seen.is_open_to_others, seen.is_writable) == (
        FolderKind.FOLDER, True, False, True,
    )  # fmt: skip
    assert seen.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to(tmp_path, mode):
    tmp_path.chmod(mode)
    assert look_at(tmp_path).is_open_to_others


def test_a_missing_folder_is_judged_by_where_it_would_be_made(tmp_path):
    seen = look_at(tmp_path / "a" / "b")
    assert (seen.kind, seen.is_writable) == (FolderKind.MISSING, True)
    assert seen.free_bytes > 0
    assert not (tmp_path / "a").exists()


def test_a_folder_that_takes_no_file():
    """Not even root can make a file in /proc, whatever its mode says."""
    seen = look_at(Path("/proc"))
    assert (seen.kind, seen.is_writable) == (FolderKind.FOLDER, False)


def test_a_link_is_followed_only_where_the_recorder_follows_it(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert look_at(tmp_path / "link").kind is FolderKind.LINK
    assert look_at(tmp_path / "link", follows_links=True).kind is FolderKind.FOLDER


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    seen = look_at(tmp_path / "file")
    assert (seen.kind, seen.is_writable) == (FolderKind.OTHER, False)
    assert look_at(tmp_path / "file" / "below").kind is FolderKind.CLOSED


def test_a_folder_of_another_user(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 12345, 12345)
    assert not look_at(tmp_path).is_own


def test_a_full_tmpfs(small_disk):
    place = small_disk("shm", 64 << 10)
    assert look_at(place).free_bytes == 64 << 10
    (place / "fill").write_bytes(bytes(64 << 10))
    assert look_at(place).free_bytes == 0
