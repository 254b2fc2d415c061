"""The RAS client against a real TCP server that behaves well, hangs, lies, and leaves early."""

from __future__ import annotations

import time

import pytest

from comminsight.capture.ras_client import DEFAULT_PORT, RasAddress, ask_ras, ras_address
from comminsight.errors import UnreachableError
from comminsight.format.ras import parse_ras
from comminsight.model.ras import RasForm
from tests.builders.ras import TEXT_BEHIND, ras_comm, ras_json, ras_rank
from tests.builders.ras_server import RasServer, serving

JSON = ras_json(ras_comm(0xAB, [ras_rank(rank) for rank in range(300)]))
TEXT = TEXT_BEHIND.encode()


def test_a_whole_answer_in_json() -> None:
    with serving(RasServer(json=JSON)) as server:
        reply = ask_ras(RasAddress(*server.address), deadline_s=10)
    assert (reply.form, reply.data) == (RasForm.JSON, JSON)
    assert len(JSON) > 100_000  # several packets
    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 10", "SET FORMAT json", "VERBOSE STATUS"]


def test_text_where_json_is_refused() -> None:
    with serving(RasServer(text=TEXT)) as server:
        reply = ask_ras(RasAddress(*server.address), deadline_s=10)
    assert (reply.form, reply.data) == (RasForm.TEXT, TEXT)
    assert parse_ras(reply.data).form is RasForm.TEXT


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (RasServer(greeting=b"HTTP/1.1 400 Bad Request\n"), "greeted with 'HTTP/1.1 400"),
        (RasServer(greeting=b"x" * 10_000), "no end"),
        (RasServer(greeting=bytes(range(128, 256)) + b"\n"), "greeted with"),
        (RasServer(close_after=0), "closed the connection early"),
        (RasServer(close_after=2), "closed the connection early"),
        (RasServer(text=b""), "neither the JSON nor the text"),
        (RasServer(text=b"\0\1\2 garbage"), "neither the JSON nor the text"),
        (RasServer(json=JSON[:5000]), "not the JSON"),
        (RasServer(json=b"[1]"), "neither the JSON nor the text"),
    ],
)
def test_what_is_no_answer(server: RasServer, said: str) -> None:
    with serving(server), pytest.raises(UnreachableError, match=said) as caught:
        ask_ras(RasAddress(*server.address), deadline_s=10)
    assert str(server.address[1]) in str(caught.value)
    assert "NCCL_RAS_ADDR" in caught.value.next_step


@pytest.mark.parametrize("hang_after", [0, 2, 3])
def test_a_server_that_hangs_costs_the_deadline_and_no_more(hang_after: int) -> None:
    begin_s = time.monotonic()
    with (
        serving(RasServer(json=JSON, hang_after=hang_after)) as server,
        pytest.raises(UnreachableError, match=r"no answer within 0\.3 s"),
    ):
        ask_ras(RasAddress(*server.address), deadline_s=0.3)
    assert 0.3 <= time.monotonic() - begin_s < 5


def test_a_server_that_never_stops_talking() -> None:
    with (
        serving(RasServer(text=TEXT, endless=b"x" * 4096)) as server,
        pytest.raises(UnreachableError, match="longer than 100000 bytes"),
    ):
        ask_ras(RasAddress(*server.address), deadline_s=10, max_bytes=100_000)


def test_a_server_that_talks_slowly_for_ever_meets_the_deadline() -> None:
    """Each byte comes in time, the whole does not."""
    with (
        serving(RasServer(text=TEXT, endless=b"x")) as server,
        pytest.raises(UnreachableError, match="no answer within"),
    ):
        ask_ras(RasAddress(*server.address), deadline_s=0.3)


def test_nobody_listens() -> None:
    with serving(RasServer()) as server:
        pass
    with pytest.raises(UnreachableError, match="refused"):
        ask_ras(RasAddress(*server.address), deadline_s=5)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, RasAddress("localhost", DEFAULT_PORT)),
        ({"NCCL_RAS_ADDR": "localhost:4711"}, RasAddress("localhost", 4711)),
        ({"NCCL_RAS_ADDR": "[::1]:4711"}, RasAddress("::1", 4711)),
        ({"NCCL_RAS_ADDR": "nonsense"}, RasAddress()),
        ({"NCCL_RAS_ADDR": "host:70000"}, RasAddress()),
        ({"NCCL_RAS_ADDR": ":1"}, RasAddress()),
        ({"NCCL_RAS_ENABLE": "1"}, RasAddress()),
        ({"NCCL_RAS_ENABLE": "0", "NCCL_RAS_ADDR": "localhost:1"}, None),
    ],
)
def test_where_to_ask(environment: dict[str, str], expected: RasAddress | None) -> None:
    assert ras_address(environment) == expected
