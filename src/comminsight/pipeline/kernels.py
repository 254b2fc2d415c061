"""Native kernels of the analysis: the only ctypes of this side.

Each stands in for a numpy reference with the same results; where the library is not there, or is
of another version, the reference is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from comminsight.analysis.waits import PairSums, Sweep, numpy_sweep
from comminsight.pipeline.native_folder import native_folder

LIBRARY_NAME = "libcomminsight-pairs.so"
Kernel: TypeAlias = Callable[..., int]
_VERSION = 1
_OUT_OF_RANGE, _NO_MEMORY = 1, 2
_MAX_SPREAD = 8  # instance numbers per row up to which a table of them is affordable


def pair_sweep() -> Sweep:
    """The fastest sweep that this installation has; see ``analysis.waits.Sweep``."""
    kernel = _pair_waits(native_folder() / LIBRARY_NAME)
    if kernel is None:
        return numpy_sweep

    def sweep(
        rank: np.ndarray, instance: np.ndarray, start_ns: np.ndarray, n_ranks: int
    ) -> PairSums:
        return _sweep(kernel, rank, instance, start_ns, n_ranks)

    return sweep


@cache
def _pair_waits(path: Path) -> Kernel | None:
    """The kernel of this library; None where it cannot be used."""
    try:
        library = ctypes.CDLL(str(path))
        version = library.ci_pairs_version()
    except (OSError, AttributeError):
        return None
    if version != _VERSION:
        return None
    kernel = library.ci_pair_waits
    size, column = ctypes.c_int64, ctypes.c_void_p
    kernel.argtypes = (size, column, column, column, size, size, column, column)
    kernel.restype = ctypes.c_int32
    return kernel


def _sweep(
    kernel: Kernel,
    rank: np.ndarray,
    instance: np.ndarray,
    start_ns: np.ndarray,
    n_ranks: int,
) -> PairSums:
    """Raises ValueError for columns that are not one step's, MemoryError where there is none."""
    sums = PairSums(np.zeros(n_ranks, np.int64), np.zeros(n_ranks, np.int64))
    if not len(rank):
        return sums
    n_instances = int(instance.max()) + 1
    if n_instances > _MAX_SPREAD * len(rank):
        numbers, instance = np.unique(instance, return_inverse=True)
        n_instances = len(numbers)
    columns = [np.ascontiguousarray(c, np.int64) for c in (rank, instance, start_ns)]
    outcome = kernel(
        len(rank), *(c.ctypes.data for c in columns), n_ranks, n_instances,
        sums.caused_ns.ctypes.data, sums.n_pairs.ctypes.data,
    )  # fmt: skip
    if outcome == _OUT_OF_RANGE:
        raise ValueError("ranks, instances or starts out of range: not one step on one clock")
    if outcome == _NO_MEMORY:
        raise MemoryError(f"pair waits of {len(rank)} ops")
    return sums
