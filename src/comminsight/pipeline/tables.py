"""Arrow tables where pyarrow is installed: the base install has none."""

from __future__ import annotations

import importlib
from types import ModuleType

from comminsight.errors import InputError

TABLES = "comminsight.pipeline.arrow"


def arrow() -> ModuleType:
    """``pipeline.arrow``, loaded when tables are asked for.

    Raises InputError where a package is missing.
    """
    try:
        return importlib.import_module(TABLES)
    except ImportError as error:
        raise InputError(
            f"tables need {error.name or 'pyarrow'}",
            next_step="pip install 'comminsight[store]'",
            code="no_tables",
            package=error.name or "pyarrow",
        ) from error
