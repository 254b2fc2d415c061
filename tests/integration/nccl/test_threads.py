"""Ranks that are threads of one process: one black box, and yet every rank is told by itself."""

from __future__ import annotations

import pytest

from comminsight.model.verdict import Cause
from comminsight.run import open_run
from tests.integration.nccl.test_hangs import hang_of, pytestmark, scene
from tests.unit.nccl.scenes import kill_all, played

__all__ = ["pytestmark", "scene"]
