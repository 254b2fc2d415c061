"""Judges each file given, in a process of its own with bounds, and prints what came of it.

Run: ``python hostile_program.py < names``; one JSON line per name: exit code, what was said, and
the CPU time. Reading the code of the product again for each file would take longer than they do.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile

from comminsight.cli import main
from comminsight.cli.diagnose import main as diagnose

MAX_BYTES = 2 << 30
MAX_CPU_S = 20


def judged(path: str) -> dict[str, object]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os._exit(main(["diagnose", path, "--json"]))
        _, status, usage = os.wait4(child, 0)
        for stream in (out, err):
            stream.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read(),
            "err": err.read()[:4000],
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_mib": usage.ru_maxrss / 1024,
        }


if __name__ == "__main__":
    assert diagnose
    for name in sys.stdin.read().splitlines():
        print(json.dumps(judged(name)), flush=True)
