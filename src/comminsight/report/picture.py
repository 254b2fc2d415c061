"""What every picture has in common: equal input gives equal bytes, and names from outside are shown
as they are.

Needs matplotlib (``pip install 'comminsight[plot]'``): whoever may lack it imports this file late.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DOTS_PER_INCH = 120
# no random ids; a name with dollar signs is no formula
SETTINGS = {"svg.hashsalt": "comminsight", "svg.fonttype": "none", "text.parse_math": False}
METADATA = {"svg": {"Date": None}, "png": {"Software": None}}


@contextmanager
def drawing() -> Iterator[None]:
    """Inside, figures are made and saved by these settings."""
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        # a sign that the font lacks is a box in a png, and itself in an svg: nobody need be told
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def sheet(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that belongs to no window."""
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Figure, form: str) -> bytes:
    """The figure as ``svg`` or ``png``."""
    picture = io.BytesIO()
    figure.savefig(picture, format=form, dpi=DOTS_PER_INCH, metadata=METADATA[form])
    return picture.getvalue()
