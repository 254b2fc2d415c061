"""``python -I -S ask.py SOCKET REQUEST``: the command of a job whose ranks a fork server starts.

It stands where a launcher stands: it lives as long as the job does, hands a request to end on
(SIGTERM), and ends with the job's exit code. Only the standard library, so that it starts fast.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """The job's exit code; 1 when the server is gone."""
    address, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    request["environment"] = {k: v for k, v in os.environ.items() if k.startswith("COMMINSIGHT_")}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        signal.signal(signal.SIGTERM, lambda *_: server.sendall(b"stop\n"))
        server.sendall(json.dumps(request).encode() + b"\n")
        answer = server.makefile().readline()
    return int(answer or 1)


if __name__ == "__main__":
    sys.exit(main())
