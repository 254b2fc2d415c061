"""Which algorithm Open MPI ran: the functions of its library that the dynamic linker bound.

A component calls an algorithm of the library through a symbol that the linker binds at its first
call. ``LD_DEBUG=bindings`` writes that down, and the ranks write a mark before the first call of
each op. An echo of the parameters is no evidence and is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from comminsight.model.bench import UNCONFIRMED, Observed
from comminsight.model.bench_algorithms import MPI_OPS

SOURCE = "dynamic_linker_binding"
MARK = "comminsight: first calls of "
BEGIN = "comminsight: bindings of process "
DONE = "comminsight: first calls done"
OPS = frozenset(op for ops in MPI_OPS.values() for op in ops) | {"reduce"}
BINDING = re.compile(
    r"binding file (?:[^\s]{0,1024}/)?([\w.-]{1,128}) \[\d{1,3}\] to [^\s]{1,1024} \[\d{1,3}\]: "
    r"normal symbol `(\w{1,128})'",
    re.ASCII,
)
FUNCTION = re.compile(rf"ompi_coll_base_({'|'.join(sorted(OPS))})_intra_(\w{{1,64}})", re.ASCII)
COMPONENT = re.compile(r"mca_coll_([a-z0-9]{1,32})\.so", re.ASCII)
INNER_FUNCTIONS = frozenset({"generic"})  # the engine that several algorithms share
# tuned calls the functions above; the others pass a call on
CALLERS = ("mca_coll_tuned", "libmpi")  # others point at functions from tables, when they load
PASSING_COMPONENTS = frozenset({"tuned", "monitoring", "sync"})


def evidence_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines of one process that tell something, and its marks."""
    is_first_call = False
    for line in lines:
        if line.startswith((MARK, DONE)):
            is_first_call = line.startswith(MARK)
            yield line
        elif FUNCTION.search(line) or (is_first_call and "/mca_coll_" in line):
            yield line


def observed(evidence: str) -> tuple[Observed, ...] | str:
    """Each algorithm that ran, once and in order; ``unconfirmed`` where no binding tells one.

    ``allreduce/bcast`` is a broadcast that allreduce called. An op that a component other than
    ``tuned`` served has ``coll/COMPONENT``. What a caller had bound before the first mark it may
    call later without another line: nothing is said of such an op.
    """
    bound: set[tuple[str, str]] = set()
    bound_early: set[str] = set()
    place = ""
    for line in evidence.splitlines():
        if line.startswith((BEGIN, MARK, DONE)):
            place = _place(line)
        elif found := BINDING.search(line):
            op, algo = _told(found[1], found[2], place)
            if op and place:
                bound.add((op, algo))
            elif op and found[1].startswith(CALLERS):
                bound_early.add(op)
    rows = [pair for pair in sorted(bound) if pair[0].rpartition("/")[2] not in bound_early]
    return tuple(
        Observed(op=op, algo=algo, proto="", channels="", source=SOURCE) for op, algo in rows
    ) or (UNCONFIRMED)


def _place(line: str) -> str:
    """The op whose first calls follow; ``*`` after them, nothing before."""
    if line.startswith(BEGIN):
        return ""
    return line.removeprefix(MARK).strip() if line.startswith(MARK) else "*"


def _told(caller: str, symbol: str, place: str) -> tuple[str, str]:
    function = FUNCTION.fullmatch(symbol)
    if function and function[2] not in INNER_FUNCTIONS:
        op = function[1]
        return (op if place in {op, "*", ""} else f"{place}/{op}"), function[2]
    component = COMPONENT.fullmatch(caller)
    if component and component[1] not in PASSING_COMPONENTS and place not in {"*", ""}:
        return place, f"coll/{component[1]}"
    return "", ""
