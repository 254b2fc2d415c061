import os
import signal
import sys
import threading
import time

import pytest

from comminsight.errors import InputError
from comminsight.launch import child


def run(script, *, during=None):
    with child.relayed_signals() as relay:
        process = child.start([sys.executable, "-c", script], dict(os.environ))
        relay.attach(process)
        if during:
            threading.Thread(target=during, args=(process,)).start()
        return child.wait(process, tick=lambda: None, interval_s=0.05)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", (0, 0)),
        ("raise SystemExit(7)", (7, 0)),
        ("import os; os._exit(3)", (3, 0)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (137, 9)),
    ],
)
def test_exit_status_passes_through(script, expected):
    assert run(script) == expected


def test_a_signal_to_us_reaches_the_child():
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True); time.sleep(20)"
    )

    def send(_process):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    assert run(script, during=send) == (5, 0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_missing_command_is_named():
    with pytest.raises(InputError, match="no-such-command"):
        child.start(["no-such-command-here"], {})
