"""Class 8: ranks that do not meet: interfaces, the store, routes, GPUs, two worlds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from comminsight.diagnosis import codes_logs
from comminsight.model.verdict import Cause
from tests.builders.log_files import Line, host_of, nccl, write_logs
from tests.cases.class_01_dead_ranks import variants
from tests.cases.field_case import Expected, FieldCase, Scene

COMM = "0xfeed0123"


def stamped(lines: Iterable[Line]) -> list[Line]:
    """NCCL's lines with the stamp that newer releases write before them."""
    return [
        dataclasses.replace(line, text=f"[{line.when:%Y-%m-%d %H:%M:%S}] {line.text}")
        for line in lines
    ]


def began(
    ranks: Sequence[int], *, world: int, at_s: float = 1.0, bus: dict[int, int] | None = None,
    comm: str = COMM, local: int = 8,
) -> list[Line]:  # fmt: skip
    """Ranks begin to make the communicator of all."""
    found = []
    for rank in ranks:
        bus_id = (bus or {}).get(rank, 0x10000 * (1 + rank % local))
        who = f"comm 0x55{rank:04x}00 rank {rank} nranks {world} cudaDev {rank % local}"
        said = f"ncclCommInitRank {who} nvmlDev 0 busId {bus_id:x} commId {comm} - Init START"
        found.append(nccl(at_s, rank, said))
    return found


def complete(
    ranks: Sequence[int], *, world: int, at_s: float = 4.0, comm: str = COMM, local: int = 8
) -> list[Line]:
    found = []
    for rank in ranks:
        who = f"comm 0x55{rank:04x}00 rank {rank} nranks {world} cudaDev {rank % local}"
        bus_id = f"{0x10000 * (1 + rank % local):x}"
        said = f"ncclCommInitRank {who} nvmlDev 0 busId {bus_id} commId {comm} - Init COMPLETE"
        found.append(nccl(at_s, rank, said))
    return found


def bootstraps(faces: dict[int, tuple[str, str]]) -> list[Line]:
    return [
        nccl(0.5, rank, f"Bootstrap : Using {face}:{address}<0>")
        for rank, (face, address) in faces.items()
    ]


def gave_up(at_s: float, rank: int) -> Line:
    return nccl(at_s, rank, "Call to recv from 10.0.0.7<4455> failed : Connection timed out",
                level="WARN", source="misc/socket.cc:56")  # fmt: skip


def wrong_bridge(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], face: str, address: str, form: str
) -> Scene:
    """A few ranks offer a bridge of their own host. In the twin interfaces have other names on
    other nodes, and their addresses reach each other."""
    faces = {rank: ("eth0", f"10.0.{rank // 8}.{rank + 1}") for rank in range(n_ranks)}
    odd = faces | dict.fromkeys(culprits, (face, address))
    renamed = faces | {rank: ("ens3", f"10.0.9.{rank + 1}") for rank in culprits}
    begun = began(range(n_ranks), world=n_ranks)
    end = [gave_up(900, rank) for rank in range(n_ranks) if rank not in culprits]
    write_logs(folder / "fault", stamped([*bootstraps(odd), *begun, *end]), form=form)
    done = complete(range(n_ranks), world=n_ranks)
    write_logs(folder / "twin", stamped([*bootstraps(renamed), *begun, *done]), form=form)
    told = (codes_logs.INTERFACE_GIVEN, codes_logs.SET_INTERFACE)
    expected = Expected((Cause.INIT_WRONG_INTERFACE,), culprits, told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def loopback(folder: Path, *, n_ranks: int, culprit: int, others: str, form: str) -> Scene:
    """Loopback stands first in the list of interfaces. On one node alone that is no fault."""

    def devices(rank: int, first: str) -> Line:
        return nccl(0.5, rank, f"NET/Socket : Using {first}[1]eth0:10.0.0.{rank + 1}<0> "
                    f"[2]eth1:{others}.{rank + 1}<0>")  # fmt: skip

    usual = [devices(rank, f"[0]eth2:10.1.0.{rank + 1}<0> ") for rank in range(n_ranks)]
    usual[culprit] = devices(culprit, "[0]lo:127.0.0.1<0> ")
    far = [rank for rank in range(n_ranks) if host_of(rank) != host_of(culprit)][:2]
    refused = [
        nccl(3.0, rank, "Connect to 127.0.0.1<41001> failed : Connection refused", level="WARN",
             source="misc/socket.cc:500")
        for rank in far
    ]  # fmt: skip
    begun = began(range(n_ranks), world=n_ranks)
    write_logs(folder / "fault", stamped([*usual, *begun, *refused]), form=form)
    near = range(8)
    single = [devices(rank, "[0]lo:127.0.0.1<0> ") for rank in near]
    made = [*began(near, world=8), *complete(near, world=8)]
    write_logs(folder / "twin", stamped([*single, *made]), form=form)
    told = (codes_logs.ADDRESS_REFUSED,)
    expected = Expected((Cause.INIT_WRONG_INTERFACE,), (culprit,), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def filtered(folder: Path, *, n_ranks: int, name: str, mark: str, failing: int) -> Scene:
    """A filter that should match an interface matches none."""
    env = [nccl(0.2, rank, f"NCCL_SOCKET_IFNAME set by environment to {mark}{name}.")
           for rank in range(n_ranks)]  # fmt: skip
    listed = [
        Line(0.1, -1, f"{place + 1}: {one}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq")
        for place, one in enumerate(("lo", "docker0", name))
    ]
    warned = [
        nccl(1.0, rank, "Bootstrap : no socket interface found", level="WARN",
             source="bootstrap.cc:45")
        for rank in range(failing)
    ]  # fmt: skip
    write_logs(folder / "fault", stamped([*env, *warned]) + listed, form="files")
    write_logs(folder / "twin", stamped(env) + listed, form="files")
    told = (codes_logs.FILTER_MATCHED_NONE,) + ((codes_logs.PLAIN_FILTER,) if mark == "=" else ())
    expected = Expected((Cause.INIT_WRONG_INTERFACE,), tuple(range(failing)), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def no_store(
    folder: Path, *, n_ranks: int, address: str, port: int, listens: str, form: str
) -> Scene:
    """Clients of other nodes give up on the store. In the twin an attempt fails and is repeated."""
    far = range(8, n_ranks)
    heard = [Line(1.0, 0, f"[c10d] The server socket has started to listen on {listens}:{port}.",
                  source="socket.cpp:446")] if listens else []  # fmt: skip
    tries = [
        Line(2.0, rank, f"[c10d] The client socket has failed to connect to [{address}]:{port} "
             "(errno: 110 - Connection timed out).", source="socket.cpp:752")
        for rank in far
    ]  # fmt: skip
    end = [
        Line(602.0, rank, "torch.distributed.DistNetworkError: The client socket has timed out "
             f"after 600000ms while trying to connect to ({address}, {port}).", source="")
        for rank in far
    ]  # fmt: skip
    write_logs(folder / "fault", [*heard, *tries, *end], form=form)
    made = stamped([*began(range(n_ranks), world=n_ranks), *complete(range(n_ranks),
                    world=n_ranks)])  # fmt: skip
    write_logs(folder / "twin", [*heard, *tries, *made], form=form)
    told = (codes_logs.STORE_LISTENS,) if listens else (codes_logs.MISSING_LISTENER,)
    expected = Expected((Cause.INIT_STORE_UNREACHABLE,), (), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def no_route(folder: Path, *, n_ranks: int, peer: str, said: str, form: str) -> Scene:
    """Connections to one address find no route. In the twin some were refused and tried again."""
    far = range(n_ranks // 2, n_ranks)
    begun = began(range(n_ranks), world=n_ranks)
    failed = [
        nccl(30.0, rank, said.format(peer=peer), level="WARN", source="misc/socket.cc:480")
        for rank in far
    ]
    retried = [
        nccl(1.5, rank, "Call to connect returned Connection refused, retrying") for rank in far
    ]
    made = complete(range(n_ranks), world=n_ranks)
    write_logs(folder / "fault", stamped([*begun, *failed]), form=form)
    write_logs(folder / "twin", stamped([*begun, *retried, *made]), form=form)
    expected = Expected((Cause.PEER_UNREACHABLE,), (), told=(codes_logs.OPEN_PORTS,))
    return Scene(folder / "fault", expected, folder / "twin")


def half_connected(
    folder: Path, *, n_nodes: int, local: int, stuck: tuple[int, ...], form: str
) -> Scene:
    """The same places on every node do not get through. In the twin it is merely early."""
    world = n_nodes * local
    culprits = [rank for rank in range(world) if rank % local in stuck]
    fine = [rank for rank in range(world) if rank not in culprits]
    begun = began(range(world), world=world, local=local)
    rings = [nccl(2.0, rank, "Connected all rings") for rank in fine]
    done = complete(fine, world=world, local=local)
    late = [nccl(1500.0, fine[0], "NET/Plugin : No plugin found")]

    def placed(lines: list[Line]) -> list[Line]:
        return [
            dataclasses.replace(
                line, text=line.text.replace(host_of(line.rank), f"node{line.rank // local:02d}")
            )
            for line in stamped(lines)
        ]

    write_logs(folder / "fault", placed([*begun, *rings, *done, *late]), form=form)
    write_logs(folder / "twin", placed([*begun, *rings, *done]), form=form)
    told = (codes_logs.LOCAL_PARITY, codes_logs.CHECK_RAILS)
    expected = Expected((Cause.INIT_STUCK,), tuple(culprits), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def one_gpu(
    folder: Path, *, n_ranks: int, pair: tuple[int, int], bus: int, is_warned: bool
) -> Scene:
    """Two ranks of a host took one device. Equal bus ids on two hosts are none."""
    buses = dict.fromkeys(pair, bus)
    begun = began(range(n_ranks), world=n_ranks, bus=buses)
    warned = [
        nccl(2.0, pair[0], f"Duplicate GPU detected : rank {pair[0]} and rank {pair[1]} both on "
             f"CUDA device {bus:x}", level="WARN", source="init.cc:600"),
    ] if is_warned else [gave_up(400, pair[0])]  # fmt: skip
    write_logs(folder / "fault", stamped([*begun, *warned]))
    world = 16
    healthy = [*began(range(world), world=world), *complete(range(world), world=world)]
    write_logs(folder / "twin", stamped(healthy))
    expected = Expected((Cause.DUPLICATE_GPU,), pair, told=(codes_logs.BIND_GPUS,))
    return Scene(folder / "fault", expected, folder / "twin")


def separate_worlds(folder: Path, *, n_nodes: int, local: int, form: str) -> Scene:
    """Each node makes a world of its own. In the twin each node has a communicator of its own
    beside that of all, as tensor parallel jobs do."""
    worlds: list[Line] = []
    groups: list[Line] = []
    for node in range(n_nodes):
        for place in range(local):
            own = began([place], world=local, comm=f"0xaa{node}", local=local)[0]
            text = own.text.replace("node00", f"node{node:02d}").replace(":40", f":{41 + node}")
            worlds.append(Line(1.0, place, f"[rank{place}]: {text}", "", is_bare=True))
            rank = node * local + place
            groups.append(Line(1.0, rank, f"[rank{rank}]: {text}", "", is_bare=True))
    write_logs(folder / "fault", worlds, form=form)
    write_logs(folder / "twin", groups, form=form)
    told = (codes_logs.TWO_WORLDS, codes_logs.ONE_RENDEZVOUS)
    return Scene(folder / "fault", Expected((Cause.INIT_STUCK,), (), told=told), folder / "twin")


NO_ROUTE = "Connect to {peer}<38011> returned 113(No route to host) errno 113"
CASES: tuple[FieldCase, ...] = (
    FieldCase(67, "a bridge of the container was chosen", wrong_bridge, variants(
        "n_ranks culprits face address form",
        (16, (2,), "veth1", "172.17.0.3", "mixed"), (24, (8, 9), "docker0", "172.17.0.2", "files"),
        (16, (15,), "virbr0", "192.168.122.1", "mpirun"),
    )),
    FieldCase(68, "loopback was offered", loopback, variants(
        "n_ranks culprit others form",
        (16, 0, "169.254.3", "mixed"), (24, 9, "10.7.0", "files"), (16, 4, "10.8.0", "docker"),
    )),
    FieldCase(69, "a filter matches no interface", filtered, variants(
        "n_ranks name mark failing", (8, "enp90s0np0", "=", 8), (16, "bond0", "=", 16),
        (8, "ens3", "^", 3),
    )),
    FieldCase(70, "the store is out of reach", no_store, variants(
        "n_ranks address port listens form",
        (16, "10.0.0.1", 29500, "172.17.0.9", "mixed"), (24, "10.3.0.1", 6000, "", "files"),
        (12, "head-0", 29400, "[::]", "docker"),
    )),
    FieldCase(71, "no route to a peer", no_route, variants(
        "n_ranks peer said form",
        (16, "10.0.0.4", NO_ROUTE, "mixed"), (8, "10.1.2.3", NO_ROUTE, "files"),
        (32, "10.9.0.8", "Connect to {peer}<4001> failed : Connection timed out", "mpirun"),
    )),
    FieldCase(72, "every second GPU does not connect", half_connected, variants(
        "n_nodes local stuck form",
        (2, 4, (1, 3), "mixed"), (4, 8, (0, 2, 4, 6), "files"), (2, 8, (1, 4, 7), "mpirun"),
    )),
    FieldCase(73, "two ranks on one GPU", one_gpu, variants(
        "n_ranks pair bus is_warned", (4, (0, 3), 0xF000, True), (8, (2, 5), 0x1B000, False),
        (16, (9, 12), 0xC1000, True),
    )),
    FieldCase(74, "each node is a world of its own", separate_worlds, variants(
        "n_nodes local form", (2, 8, "mixed"), (3, 4, "mixed"), (2, 2, "docker"),
    )),
)  # fmt: skip
