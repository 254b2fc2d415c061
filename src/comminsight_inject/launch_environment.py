"""The environment that switches the inject on in a process and in all it starts."""

from __future__ import annotations

import os
from typing import Dict, Mapping

SITE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def environment(
    library: str, spool: str, run_id: str, base_env: Mapping[str, str]
) -> Dict[str, str]:
    """``base_env`` with the inject switched on; the result may be handed on to any child.

    Only the folder of ``sitecustomize`` goes onto PYTHONPATH: it loads this package by path, so
    that the packages installed beside this one never shadow those of the training job.
    """
    paths = [SITE_DIR] + [p for p in base_env.get("PYTHONPATH", "").split(os.pathsep) if p]
    result = dict(base_env)
    result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    result["COMMINSIGHT_INJECT"] = "1"
    result["COMMINSIGHT_LIBRARY"] = library
    result["COMMINSIGHT_SPOOL"] = spool
    result["COMMINSIGHT_RUN_ID"] = run_id
    return result
