"""A launcher like torchrun, in small: imports torch once, forks the ranks, and ends the others when
one fails. ``python -m tests.integration.ranks N [lab job options]``; ``--keep`` lets survivors be.
"""

import os
import signal
import sys
import time

from comminsight.lab import job, pool
from comminsight.lab.options import parse

MONITOR_S = 0.1


def start(n_ranks, arguments):
    port = pool.free_port()
    pids = []
    for rank in range(n_ranks):
        pid = os.fork()
        if not pid:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n_ranks),
                LOCAL_WORLD_SIZE=str(n_ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            job.run_job(parse(arguments, tuple(job.JOBS)))
            sys.exit(0)
        pids.append(pid)
    return pids


def main(n_ranks, *arguments):
    is_keeping = "--keep" in arguments
    pids = set(start(n_ranks, [word for word in arguments if word != "--keep"]))

    def end(number, _frame):
        for pid in pids:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, end)
    code = 0
    while pids:
        time.sleep(MONITOR_S)
        for pid in sorted(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                pids.discard(pid)
                if status:
                    code = 1
                    if not is_keeping:
                        end(signal.SIGTERM, None)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
