"""Start the inject, then run the ``sitecustomize`` that this one hides."""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_inject() -> None:
    package_dir = os.path.dirname(_HERE)
    try:
        if "comminsight_inject" not in sys.modules:
            # By path: the folder above may be a site-packages of another environment.
            from importlib.util import module_from_spec, spec_from_file_location

            spec = spec_from_file_location(
                "comminsight_inject",
                os.path.join(package_dir, "__init__.py"),
                submodule_search_locations=[package_dir],
            )
            if spec is None or spec.loader is None:
                return
            module = sys.modules["comminsight_inject"] = module_from_spec(spec)
            spec.loader.exec_module(module)
        import comminsight_inject.autoload  # noqa: F401
    except Exception:
        sys.modules.pop("comminsight_inject", None)


def _run_hidden_sitecustomize() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [p for p in sys.path if os.path.realpath(p or ".") != os.path.realpath(_HERE)]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)  # its errors are the site's own, as without us


if os.environ.get("COMMINSIGHT_INJECT") == "1":
    _start_inject()
_run_hidden_sitecustomize()
