"""What all tests rely on."""

from __future__ import annotations

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests of Ctrl-C
# would then test nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
