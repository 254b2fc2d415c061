"""``comminsight run``: a command under recording, and the watch beside it."""
