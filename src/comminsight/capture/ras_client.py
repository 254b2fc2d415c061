"""Asks NCCL's RAS for the state of the job: line commands over TCP, one answer until the end.

Every process of a node listens on the same port and any of them answers for its whole job; with two
jobs of one user on a node it may be the other one, so the caller compares the hashes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from comminsight.errors import InputError, UnreachableError
from comminsight.format.ras import MAX_ANSWER_BYTES, parse_ras
from comminsight.model.ras import RasForm

DEFAULT_PORT = 28028
DEADLINE_S = 30.0  # a sick job takes more than ten seconds to collect
COLLECT_S = 10  # how long RAS itself waits for silent processes
MAX_LINE_BYTES = 4096
RECEIVE_BYTES = 1 << 16
NEXT_STEP = "see NCCL_RAS_ENABLE and NCCL_RAS_ADDR of the job, or run ncclras on the node"


class RasAddress(NamedTuple):
    """Where RAS listens."""

    host: str = "localhost"
    port: int = DEFAULT_PORT


@dataclass(frozen=True, slots=True)
class RasReply:
    """The bytes of a whole answer, as they came."""

    form: RasForm
    data: bytes


def ras_address(environment: Mapping[str, str]) -> RasAddress | None:
    """Where the job's RAS listens by its environment; None where it is switched off.

    A value that does not read is the default's: NCCL itself falls back to it.
    """
    if environment.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        return None
    host, colon, port = environment.get("NCCL_RAS_ADDR", "").strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        return RasAddress()
    return RasAddress(host, int(port))


def ask_ras(
    address: RasAddress,
    *,
    deadline_s: float = DEADLINE_S,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> RasReply:
    """A whole answer: JSON, or text of an NCCL that has no JSON yet.

    Raises UnreachableError when nothing of the kind came before the deadline.
    """
    place = f"NCCL's RAS at {address.host}:{address.port}"
    end_s = time.monotonic() + deadline_s
    try:
        with socket.create_connection(address, timeout=deadline_s) as connection:
            form, data = _Talk(connection, end_s, max_bytes).ask()
        parse_ras(data)
    except TimeoutError as error:
        raise UnreachableError(
            f"{place} gave no answer within {deadline_s:g} s", next_step=NEXT_STEP
        ) from error
    except (OSError, _OffProtocolError, InputError) as error:
        raise UnreachableError(f"{place}: {error}", next_step=NEXT_STEP) from error
    return RasReply(form, data)


class _OffProtocolError(Exception):
    """The other side does not speak the protocol of RAS."""


@dataclass(slots=True)
class _Talk:
    """One conversation; ``_received`` are bytes beyond the last line that was read."""

    connection: socket.socket
    end_s: float
    max_bytes: int
    _received: bytearray = field(default_factory=bytearray)

    def ask(self) -> tuple[RasForm, bytes]:
        greeting = self._command("CLIENT PROTOCOL 2")
        if not greeting.startswith("SERVER PROTOCOL "):
            raise _OffProtocolError(f"it greeted with {greeting[:60]!r}")
        self._command(f"TIMEOUT {COLLECT_S}")  # one that does not know it keeps its own
        form = RasForm.JSON if self._command("SET FORMAT json") == "OK" else RasForm.TEXT
        self._send("VERBOSE STATUS")
        return form, self._rest()

    def _command(self, line: str) -> str:
        self._send(line)
        return self._line()

    def _send(self, line: str) -> None:
        self.connection.settimeout(self._left_s())
        self.connection.sendall(f"{line}\n".encode())

    def _line(self) -> str:
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > MAX_LINE_BYTES:
                raise _OffProtocolError("its first line has no end")
            if not self._receive():
                raise _OffProtocolError("it closed the connection early")
        line = self._received[:end].decode("utf-8", "replace").rstrip("\r")
        del self._received[: end + 1]
        return line

    def _rest(self) -> bytes:
        while self._receive():
            if len(self._received) > self.max_bytes:
                raise _OffProtocolError(f"its answer is longer than {self.max_bytes} bytes")
        return bytes(self._received)

    def _receive(self) -> bool:
        self.connection.settimeout(self._left_s())
        chunk = self.connection.recv(RECEIVE_BYTES)
        self._received += chunk
        return bool(chunk)

    def _left_s(self) -> float:
        left_s = self.end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s
