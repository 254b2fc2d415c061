"""A TCP server that speaks the line protocol of NCCL's RAS, well or badly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class RasServer:
    """Answers every connection; ``heard`` are all commands.

    ``json``: the answer in that form, None where it is refused; ``greeting`` replaces the first
    answer; ``close_after`` closes after so many commands; ``hang_after`` stops to answer then.
    """

    text: bytes = b""
    json: bytes | None = None
    greeting: bytes = b"SERVER PROTOCOL 2\n"
    close_after: int = 99
    hang_after: int = 99
    endless: bytes = b""
    heard: list[str] = field(default_factory=list)
    address: tuple[str, int] = ("", 0)
    stopped: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self.talk(connection)
                except OSError:
                    continue  # the client has gone

    def talk(self, connection: socket.socket) -> None:
        chosen = self.text
        lines = connection.makefile("rb")
        for number, raw in enumerate(lines, start=1):
            line = raw.decode().strip()
            self.heard.append(line)
            if number > self.hang_after:
                self.stopped.wait(20)
                return
            if number > self.close_after:
                return
            if line == "SET FORMAT json" and self.json is not None:
                chosen = self.json
            if line == "VERBOSE STATUS":
                connection.sendall(chosen)
                while self.endless and not self.stopped.is_set():
                    connection.sendall(self.endless)
                return
            connection.sendall(self.reply(line))

    def reply(self, line: str) -> bytes:
        if line.startswith("CLIENT PROTOCOL"):
            return self.greeting
        if line == "SET FORMAT json" and self.json is None:
            return b"ERROR: Unknown command SET FORMAT json\n"
        return b"OK\n"


@contextmanager
def serving(server: RasServer) -> Iterator[RasServer]:
    """The server on a free port of localhost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.address = listener.getsockname()
        thread = threading.Thread(target=server.serve, args=(listener,))
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=10)
    assert not thread.is_alive()
