import os

import pytest

from comminsight.launch.job import private_folder


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_ours_alone_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        private_folder(tmp_path / "own")
        private_folder(tmp_path / "own")
    finally:
        os.umask(before)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_an_open_folder_is_closed_to_others(tmp_path):
    (tmp_path / "own").mkdir(mode=0o777)
    private_folder(tmp_path / "own")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_of_ours_is_refused(tmp_path, kind):
    if kind == "link":
        (tmp_path / "own").symlink_to(tmp_path)
    else:
        (tmp_path / "own").write_text("")
    with pytest.raises(PermissionError):
        private_folder(tmp_path / "own")
