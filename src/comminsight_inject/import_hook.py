"""Patches ``torch.distributed.distributed_c10d`` right after its body ran, whoever imports it.

At that moment ``torch.distributed`` has not yet copied the names by its star import, so that every
later holder of a name receives the patched function.
"""

from __future__ import annotations

import atexit
import sys
from _thread import get_ident
from typing import Any, Set

TARGET = "torch.distributed.distributed_c10d"


class _C10dFinder:
    """Answers for ``TARGET`` with the spec that the others would give, until its body ran.

    Who only asks for the spec, or whose import fails, does not use it up.
    """

    def __init__(self) -> None:
        self._asking: Set[int] = set()  # threads that ask the others, who may ask us in turn

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        thread = get_ident()
        if name != TARGET or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            spec = self._spec_of_others(name, path, target)
        finally:
            self._asking.discard(thread)
        if spec is not None:
            _patch_after_body(spec.loader, self)
        return spec

    def _spec_of_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                return spec
        return None


def _patch_after_body(loader: Any, finder: _C10dFinder) -> None:
    try:
        run_body = loader.exec_module

        def exec_module(module: Any) -> None:
            run_body(module)
            sys.meta_path[:] = [other for other in sys.meta_path if other is not finder]
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
