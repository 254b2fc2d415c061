"""What NCCL's RAS subsystem answered: who belongs to which communicator, who is gone, how far.

RAS counts ops that were *launched*, not those that ended, and only five collective functions: no
P2P, no copy-engine or symmetric kernels, mostly no captured graphs. Hosts are addresses as RAS
writes them, not host names. Unknown numbers are -1, unknown words "".
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RasForm(StrEnum):
    """The two forms of an answer; the text names only outliers."""

    JSON = "json"
    TEXT = "text"


class RasPresence(StrEnum):
    """How the process behind a member stands towards RAS."""

    ANSWERED = "answered"
    LEFT = "left"  # it answered, and knows this communicator no longer
    SILENT = "silent"  # no answer in time
    DEAD = "dead"  # not reachable any more: RAS considers the process dead


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process as RAS names it."""

    host: str = ""
    pid: int = -1


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a communicator. Errors are names of ``ncclResult_t``, "" for none."""

    comm_rank: int
    presence: RasPresence
    process: RasProcess = RasProcess()
    cuda_device: int = -1
    status: str = ""  # NOCOMM, INIT, RUNNING, FINALIZE, ABORT
    init_error: str = ""
    async_error: str = ""


class RasLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """``n_ranks`` members had launched ``n_launched`` ops of one function (``Op``).

    ``comm_ranks`` are those that the answer names: all of them in JSON, perhaps none in text.
    """

    op: int
    n_launched: int
    n_ranks: int
    comm_ranks: tuple[int, ...] = ()


class RasCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator; ``comm_size`` is 0 where the answer does not tell it.

    ``second_hash`` tells communicators of equal ``comm_hash`` apart. ``launches`` hold the largest
    group of a function first.
    """

    comm_hash: int
    second_hash: str = ""
    comm_size: int = 0
    ranks: tuple[RasRank, ...] = ()
    launches: tuple[RasLaunches, ...] = ()


class RasAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer.

    ``gone`` are silent and dead processes, also those of no listed communicator; ``n_gone`` counts
    them where they are not named. ``is_whole`` is false for a text that ends early; ``n_unread``
    counts entries and lines that this version does not know.
    """

    form: RasForm
    nccl_version: str = ""
    timestamp: str = ""
    taken_ns: int = 0  # the same as a number, the wall clock read as UTC; 0 unknown
    communicators: tuple[RasCommunicator, ...] = ()
    gone: dict[RasPresence, tuple[RasProcess, ...]] = {}
    n_gone: dict[RasPresence, int] = {}
    n_timeouts: int = 0
    is_whole: bool = True
    n_unread: int = 0


class RasReading(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with where it came from.

    ``observed_mono_ns`` is that of the hang event for which it was asked; 0 for a file that was
    given by hand, of which nobody knows when it was taken. ``written_ns`` is when its file was
    written, wall time; 0 where that is not known.
    """

    answer: RasAnswer
    source: str
    observed_mono_ns: int = 0
    written_ns: int = 0


def launched_by(communicator: RasCommunicator, op: int) -> dict[int, int]:
    """Ops of ``op`` launched, by comm_rank, as far as the answer tells.

    Where all groups but one name their members, those left over are the members of that one.
    """
    groups = [group for group in communicator.launches if group.op == op]
    known = {rank: group.n_launched for group in groups for rank in group.comm_ranks}
    open_groups = [group for group in groups if len(group.comm_ranks) < group.n_ranks]
    if len(open_groups) == 1 and not open_groups[0].comm_ranks and communicator.comm_size > 0:
        rest = [rank for rank in range(communicator.comm_size) if rank not in known]
        if len(rest) == open_groups[0].n_ranks:
            known |= dict.fromkeys(rest, open_groups[0].n_launched)
    return known
