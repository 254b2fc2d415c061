"""Reads logs for another process: ``python -P -m comminsight.pipeline.log_worker``."""

from __future__ import annotations

import gc
import sys

from comminsight.pipeline.job_logs import read_log
from comminsight.pipeline.reading_pool import serve

if __name__ == "__main__":
    gc.disable()  # it lives for one answer
    serve(read_log, sys.stdin.buffer, sys.stdout.buffer)
