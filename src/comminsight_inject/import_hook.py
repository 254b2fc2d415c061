"""Patches ``torch.distributed.distributed_c10d`` right after its body ran, whoever imports it.

At that moment ``torch.distributed`` has not yet copied the names by its star import, so that every
later holder of a name receives the patched function.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any

TARGET = "torch.distributed.distributed_c10d"


class _C10dFinder:
    """A finder that answers once, for ``TARGET``, with the spec that the others would give."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != TARGET:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                _patch_after_body(spec.loader)
                return spec
        return None


def _patch_after_body(loader: Any) -> None:
    try:
        run_body = loader.exec_module

        def exec_module(module: Any) -> None:
            run_body(module)
            patch(module)

        loader.exec_module = exec_module
    except Exception:
        pass


def patch(module: Any) -> None:
    """Put the hooks around the functions that make and unmake groups; never raises."""
    try:
        # Not at the top: most processes of a job never come here, and should start fast.
        from comminsight_inject import group_hooks

        group_hooks.patch(module)
    except Exception:
        pass


def _close() -> None:
    session = sys.modules.get("comminsight_inject.session")
    if session is not None:
        session.SESSION.close()


def install() -> None:
    """Wait for the import of ``TARGET``, or patch it now where it is loaded already.

    What is registered first at exit runs last: after every handler of the job that may still use
    its groups.
    """
    atexit.unregister(_close)
    atexit.register(_close)
    if TARGET in sys.modules:
        patch(sys.modules[TARGET])
    elif not any(isinstance(finder, _C10dFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _C10dFinder())
