"""What the dynamic linker's lines tell of Open MPI's algorithms, and what they do not."""

from __future__ import annotations

import pytest

from comminsight.format.openmpi_algorithm import BEGIN, DONE, MARK, evidence_lines, observed

TUNED = "mca_coll_tuned.so"
MPI = "libmpi.so.40"


def bound(caller: str, symbol: str) -> str:
    return (
        f"      4711:\tbinding file /usr/lib/openmpi3/{caller} [0] to /lib/libmpi.so.40 [0]: "
        f"normal symbol `{symbol}'"
    )


def function(op: str, algo: str, caller: str = TUNED) -> str:
    return bound(caller, f"ompi_coll_base_{op}_intra_{algo}")


def mark(op: str) -> str:
    return f"{MARK}{op}"


def told(*lines: str) -> list[tuple[str, str]] | str:
    seen = observed("\n".join((f"{BEGIN}4711", *lines)))
    return seen if isinstance(seen, str) else [(one.op, one.algo) for one in seen]


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ([mark("allreduce"), function("allreduce", "ring")], [("allreduce", "ring")]),
        # a small payload falls back inside of the library
        ([mark("allreduce"), function("allreduce", "ring_segmented"),
          function("allreduce", "ring", MPI)],
         [("allreduce", "ring"), ("allreduce", "ring_segmented")]),
        # an op that another calls is told as such, and not as the other's own
        ([mark("allreduce"), function("allreduce", "nonoverlapping"),
          function("reduce", "binomial"), function("bcast", "binomial"), mark("bcast")],
         [("allreduce", "nonoverlapping"), ("allreduce/bcast", "binomial"),
          ("allreduce/reduce", "binomial")]),
        # the engine that broadcasts share is no algorithm
        ([mark("bcast"), function("bcast", "bintree"), function("bcast", "generic", MPI)],
         [("bcast", "bintree")]),
        # another component
        ([mark("allreduce"), bound("mca_coll_sm.so", "memcpy")], [("allreduce", "coll/sm")]),
        ([mark("allreduce"), bound("mca_coll_monitoring.so", "memcpy"),
          function("allreduce", "ring")], [("allreduce", "ring")]),
        # after the first calls
        ([mark("bcast"), DONE, function("allreduce", "ring"),
          bound("mca_coll_han.so", "mca_coll_han_free_dynamic_rules")], [("allreduce", "ring")]),
        ([mark("alltoall"), function("alltoallv", "pairwise"),
          function("barrier", "recursivedoubling")], "unconfirmed"),
        ([mark("allreduce")], "unconfirmed"),
        ([], "unconfirmed"),
        (["NCCL_ALGO set by environment to Ring", "coll_tuned_allreduce_algorithm=ring"],
         "unconfirmed"),
    ],
)  # fmt: skip
def test_told(lines: list[str], seen: list[tuple[str, str]] | str) -> None:
    assert told(*lines) == seen


@pytest.mark.parametrize(
    ("caller", "seen"),
    [
        (TUNED, "unconfirmed"), (MPI, "unconfirmed"),
        ("mca_coll_basic.so", [("bcast", "binomial")]),  # its table of functions, made on load
    ],
)  # fmt: skip
def test_what_was_bound_early_may_run_unseen(
    caller: str, seen: list[tuple[str, str]] | str
) -> None:
    early = function("bcast", "basic_linear", caller)
    assert told(early, mark("bcast"), function("bcast", "binomial")) == seen


def test_each_process_begins_anew() -> None:
    lines = [mark("allreduce"), function("allreduce", "ring"), DONE, f"{BEGIN}4712",
             function("allreduce", "ring")]  # fmt: skip
    assert told(*lines) == "unconfirmed"


def test_only_lines_that_tell_are_kept() -> None:
    before = [bound("mca_coll_sm.so", "memcpy"), function("bcast", "chain", MPI)]
    first = [mark("bcast"), bound("mca_coll_sm.so", "memcpy"), bound("libc.so.6", "free")]
    after = [DONE, bound("mca_coll_han.so", "free"), "3: transferring control"]
    assert list(evidence_lines([*before, *first, *after])) == [before[1], *first[:2], DONE]
