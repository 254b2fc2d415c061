"""Pictures that a verb writes into a file of the user's choice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from comminsight.errors import UsageError

FORMS = (".svg", ".png")


def plot_drawer(plot: Path, module: str) -> Callable[..., bytes]:
    """``drawn`` of a module that needs matplotlib.

    Raises UsageError, before anything is measured or read, where it is not installed, or the file
    cannot become a picture: another name than *.svg or *.png, there already, no such folder.
    """
    if plot.suffix not in FORMS:
        raise UsageError(f"--plot {plot}: not .svg or .png", next_step="name the file so")
    if plot.exists() or plot.is_symlink():
        raise UsageError(f"--plot {plot} is there already", next_step="give another name")
    if not plot.parent.is_dir():
        raise UsageError(f"--plot {plot}: no such folder", next_step="make it first")
    try:
        drawn: Callable[..., bytes] = importlib.import_module(module).drawn
    except ImportError as error:
        raise UsageError(
            f"matplotlib is not installed: {error}",
            next_step="pip install 'comminsight[plot]', or leave out --plot",
        ) from error
    return drawn


def write_plot(plot: Path, picture: bytes) -> None:
    """The picture as a new file."""
    with plot.open("xb") as file:
        file.write(picture)
