"""Imported at interpreter start (``.pth`` or ``sitecustomize``): waits for torch.distributed.

Running it twice is harmless: a module body runs once, and every patch looks for its own mark.
"""

from __future__ import annotations

import os

OFF = ("", "0", "false", "no")  # the recorder reads COMMINSIGHT_DISABLE the same way


def start() -> bool:
    """True when the process now waits for torch.distributed; False when it is not asked to."""
    is_disabled = os.environ.get("COMMINSIGHT_DISABLE", "").lower() not in OFF
    if os.environ.get("COMMINSIGHT_INJECT") != "1" or is_disabled:
        return False
    try:
        from comminsight_inject import import_hook

        import_hook.install()
    except Exception:
        return False
    return True


start()
