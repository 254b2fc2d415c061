"""torch and NCCL are found by metadata and by path, and never imported."""

import os
import sys

import pytest

from comminsight.errors import InputError
from comminsight.probe.packages import (
    Found,
    loader_folders,
    named_on_path,
    nccl_versions,
    search_path,
    torch_versions,
)


def install(folder, name, version):
    (folder / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)


def test_packages_of_the_folders_are_found_the_first_of_a_name_wins(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    install(first, "torch", "2.9.1+cu128")
    install(first, "torchvision", "0.1")
    install(first, "nvidia-nccl-cu12", "2.27.5")
    install(second, "torch", "2.1.0")
    install(second, "nvidia-nccl-cu13", "2.28.9")
    folders = (str(first), str(second))
    assert torch_versions(folders) == (Found("2.9.1+cu128", str(first)),)
    assert [found.version for found in nccl_versions(folders, ())] == ["2.27.5", "2.28.9"]


def test_folders_that_are_none_hold_no_package(tmp_path):
    (tmp_path / "torch-1.egg").touch()
    folders = (str(tmp_path), "/no/such/folder", str(tmp_path / "torch-1.egg"))
    assert torch_versions(folders) == ()


def test_libraries_tell_their_version_by_the_name_of_their_file(tmp_path):
    for folder, target in (("a", "libnccl.so.2.30.7"), ("b", "libnccl.so.2"), ("c", "")):
        (tmp_path / folder).mkdir()
        if target:
            (tmp_path / folder / target).touch()
    (tmp_path / "a" / "libnccl.so.2").symlink_to("libnccl.so.2.30.7")
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "c" / "libnccl.so.2").symlink_to("nowhere")
    folders = [str(tmp_path / name) for name in ("a", "again", "b", "c")]
    assert nccl_versions((), folders) == (
        Found("2.30.7", str(tmp_path / "a" / "libnccl.so.2.30.7")),
        Found("", str(tmp_path / "b" / "libnccl.so.2")),
    )


def test_the_loader_looks_in_the_given_folders_first(tmp_path):
    (tmp_path / "lib.so").touch()
    assert loader_folders(f":{tmp_path}::/b")[:2] == (str(tmp_path), "/b")
    assert named_on_path("lib.so", str(tmp_path)) == str(tmp_path / "lib.so")
    assert named_on_path("no-such-lib.so", str(tmp_path)) == ""


def test_another_python_is_asked_for_its_path(tmp_path):
    again = tmp_path / "python"
    again.symlink_to(os.path.realpath(sys.executable))
    assert any("python" in folder for folder in search_path(str(again)))


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false", "/bin/echo"])
def test_what_is_no_python_is_named(python):
    with pytest.raises(InputError, match=python) as caught:
        search_path(python)
    assert "--python" in caught.value.next_step
