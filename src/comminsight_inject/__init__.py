"""What runs inside the training process: names of groups, and ops of backends without a profiler.

An island: standard library only, Python 3.9 syntax, never imports torch by itself, never raises
into the job, and does nothing in a process that creates no process group.
"""

from comminsight_inject.launch_environment import environment

__all__ = ["environment"]
