"""Files for pictures: what is refused, and when."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from comminsight.cli.plots import plot_drawer, write_plot
from comminsight.errors import UsageError

MODULE = "comminsight.report.exposed_plot"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.pdf", "not .svg or .png"), ("x", "not .svg or .png"),
        ("nowhere/x.svg", "no such folder"), ("there.svg", "is there already"),
        ("link.png", "is there already"),
    ],
)  # fmt: skip
def test_what_cannot_become_a_picture_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "there.svg").write_text("mine")
    (tmp_path / "link.png").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match=said):
        plot_drawer(tmp_path / name, MODULE)
    assert (tmp_path / "there.svg").read_text() == "mine"


def test_without_matplotlib_the_package_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules, "matplotlib"]:  # nor any part of it
        if name.partition(".")[0] == "matplotlib":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(UsageError, match="matplotlib is not installed") as caught:
        plot_drawer(tmp_path / "x.svg", MODULE)
    assert "pip install 'comminsight[plot]'" in caught.value.next_step


def test_nothing_is_written_over(tmp_path: Path) -> None:
    write_plot(tmp_path / "x.svg", b"1")
    with pytest.raises(FileExistsError):
        write_plot(tmp_path / "x.svg", b"2")
    assert (tmp_path / "x.svg").read_bytes() == b"1"
