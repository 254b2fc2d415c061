"""The simulation itself: ranks run their programs, ops end when the rules of the library say so.

Laws: a collective starts to move when its last member has entered and the group's previous
collective has ended; it ends for all members ``cost`` later. Members that meet in one instance
with different ops or sizes never leave it. A buffered send ends for its sender when it is handed
over and arrives ``cost`` later; a rendezvous send ends with its receive. Only groups and pairs
queue (no link is shared between them), so all times follow from the order of entries inside each
group and each pair; every rank may therefore be run as far as it gets, in any order, with the
same result.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from comminsight.model.ops import Op
from comminsight.sim.program import ENTER, WAIT, WORK, OpSpec, Program

IN_FLIGHT = -1
CostRatio = Callable[[OpSpec, int, int], float]  # (op, step, nth of its stream) -> factor


@dataclass(slots=True, eq=False)
class Ticket:
    """What a rank holds for an op it entered; ``end_ns`` is ``IN_FLIGHT`` until it is known."""

    n_missing: int
    signature: tuple[Op, int]
    end_ns: int = IN_FLIGHT
    latest_ns: int = 0
    places: list[tuple[Lane, int]] = field(default_factory=list)
    waiters: list[Lane] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Lane:
    """One rank while it runs, and the log of what it did (parallel lists, one entry per op)."""

    rank: int
    programs: Sequence[Program]
    work: list[list[int]]
    now_ns: int = 0
    step: int = 0
    pc: int = 0
    is_stopped: bool = False
    tickets: dict[int, tuple[Ticket, int]] = field(default_factory=dict)
    op_index: list[int] = field(default_factory=list)
    step_of_op: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    step_starts_ns: list[int] = field(default_factory=lambda: [0])
    step_ends_ns: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """True when every step has been run."""
        return self.step == len(self.programs)


class Machine:
    """Runs lanes until nothing moves any more."""

    def __init__(self, lanes: Sequence[Lane], cost_ratio: CostRatio, *, is_buffered: bool) -> None:
        """``cost_ratio`` scales each transfer; ``is_buffered`` decides how sends end."""
        self._ready: deque[Lane] = deque(lanes)
        self._cost_ratio = cost_ratio
        self._is_buffered = is_buffered
        self._entered: dict[tuple[int, int], int] = defaultdict(int)  # (rank, comm) -> collectives
        self._instances: dict[tuple[int, int], Ticket] = {}
        self._free_ns: dict[tuple[int, ...], int] = defaultdict(int)  # when group or pair is idle
        self._sent: dict[tuple[int, int, int], deque[tuple[Ticket, int, int]]] = defaultdict(deque)
        self._wanted: dict[tuple[int, int, int], deque[Ticket]] = defaultdict(deque)
        self._n_sent: dict[tuple[int, int, int], int] = defaultdict(int)

    def run(self) -> None:
        """Runs every lane to its end, its stop or the op it waits for forever."""
        while self._ready:
            self._advance(self._ready.popleft())

    def _advance(self, lane: Lane) -> None:
        while not lane.is_finished:
            program = lane.programs[lane.step]
            work = lane.work[lane.step]
            instructions = program.instructions
            while lane.pc < len(instructions):
                code, operand, slot = instructions[lane.pc]
                if code == WORK:
                    lane.now_ns += work[operand]
                elif code == ENTER:
                    self._enter(lane, program.ops[operand], operand, slot)
                elif code == WAIT:
                    if not _wait(lane, program, operand):
                        return
                else:
                    lane.is_stopped = True
                    return
                lane.pc += 1
            lane.step_ends_ns.append(lane.now_ns)
            lane.step += 1
            lane.pc = 0
            if not lane.is_finished:
                lane.step_starts_ns.append(lane.now_ns)

    def _enter(self, lane: Lane, spec: OpSpec, operand: int, slot: int) -> None:
        place = len(lane.start_ns)
        lane.op_index.append(operand)
        lane.step_of_op.append(lane.step)
        lane.start_ns.append(lane.now_ns)
        lane.end_ns.append(IN_FLIGHT)
        if spec.source < 0:
            ticket = self._enter_collective(lane, spec, place)
        elif spec.op is Op.SEND:
            ticket = self._enter_send(lane, spec)
        else:
            ticket = self._enter_receive(lane, spec)
        lane.tickets[slot] = (ticket, place)

    def _enter_collective(self, lane: Lane, spec: OpSpec, place: int) -> Ticket:
        nth = self._entered[lane.rank, spec.comm_id]
        self._entered[lane.rank, spec.comm_id] = nth + 1
        key = (spec.comm_id, nth)
        ticket = self._instances.get(key)
        signature = (spec.op, spec.size_bytes)
        if ticket is None:
            ticket = self._instances[key] = Ticket(spec.n_members, signature)
        if ticket.signature == signature:
            ticket.n_missing -= 1
        ticket.latest_ns = max(ticket.latest_ns, lane.now_ns)
        ticket.places.append((lane, place))
        if ticket.n_missing == 0:
            del self._instances[key]
            begin_ns = max(ticket.latest_ns, self._free_ns[spec.comm_id,])
            end_ns = begin_ns + round(spec.cost_ns * self._cost_ratio(spec, lane.step, nth))
            self._free_ns[spec.comm_id,] = end_ns
            self._complete(ticket, end_ns)
        return ticket

    def _enter_send(self, lane: Lane, spec: OpSpec) -> Ticket:
        key = (spec.comm_id, spec.source, spec.target)
        nth = self._n_sent[key]
        self._n_sent[key] = nth + 1
        cost_ns = round(spec.cost_ns * self._cost_ratio(spec, lane.step, nth))
        ticket = Ticket(1, (spec.op, spec.size_bytes))
        self._sent[key].append((ticket, lane.now_ns, cost_ns))
        if self._is_buffered:
            self._complete(ticket, lane.now_ns + 1_000)
        self._meet(key)
        return ticket

    def _enter_receive(self, lane: Lane, spec: OpSpec) -> Ticket:
        key = (spec.comm_id, spec.source, spec.target)
        ticket = Ticket(1, (spec.op, spec.size_bytes))
        ticket.latest_ns = lane.now_ns
        self._wanted[key].append(ticket)
        self._meet(key)
        return ticket

    def _meet(self, key: tuple[int, int, int]) -> None:
        """Ends the oldest send and receive of a pair when both are there."""
        if not self._sent[key] or not self._wanted[key]:
            return
        send, sent_ns, cost_ns = self._sent[key].popleft()
        wanted = self._wanted[key].popleft()
        begin_ns = sent_ns if self._is_buffered else max(sent_ns, wanted.latest_ns)
        arrival_ns = max(begin_ns, self._free_ns[key]) + cost_ns
        self._free_ns[key] = arrival_ns
        self._complete(wanted, max(arrival_ns, wanted.latest_ns + 1_000))
        if not self._is_buffered:
            self._complete(send, arrival_ns)

    def _complete(self, ticket: Ticket, end_ns: int) -> None:
        ticket.end_ns = end_ns
        for lane, place in ticket.places:
            lane.end_ns[place] = end_ns
        self._ready.extend(ticket.waiters)
        ticket.waiters.clear()


def _wait(lane: Lane, program: Program, slot: int) -> bool:
    """Waits for the op in ``slot``; False while its end is not known.

    The end of a P2P op is only seen when its wait returns, as on gloo.
    """
    ticket, place = lane.tickets[slot]
    if ticket.end_ns == IN_FLIGHT:
        ticket.waiters.append(lane)
        return False
    lane.now_ns = max(lane.now_ns, ticket.end_ns)
    if program.ops[lane.op_index[place]].source >= 0:
        lane.end_ns[place] = lane.now_ns
    return True
