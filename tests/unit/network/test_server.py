"""The listening socket: what is set on it, and what the owner is told when it cannot be had."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import AsyncIterator, Mapping

import pytest
from starlette.responses import PlainTextResponse

from appliance.base.errors import StartFailed
from appliance.network.server import Server, bind, server_config, start_failed
from tests.unit.engine.waiting import until


@pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")
def test_a_peer_whose_network_is_gone_is_found_within_thirty_seconds():
    with bind("127.0.0.1", 0) as listening, socket.socket() as client:
        listening.listen()
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
            idle, every, count = (
                accepted.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + every * count <= 30


async def test_no_piece_of_an_answer_waits_for_the_one_before_to_be_acknowledged():
    """Nagle's algorithm is off on the connections of our socket: with it a short answer took 40 ms longer."""
    connected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        connected.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(serve, sock=bind("127.0.0.1", 0)) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await connected
        writer.close()


def test_who_comes_before_the_program_listens_is_refused_at_once():
    with bind("127.0.0.1", 0) as sock, socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(sock.getsockname())


def test_a_taken_port_is_named():
    with bind("127.0.0.1", 0) as holder:
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(StartFailed, match=f"port = {port}: another program"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["198.51.100.7", "no such name here"])
def test_an_address_this_pc_does_not_have_is_named(host):
    with pytest.raises(StartFailed, match=f"host = {host}"):
        bind(host, 0)


def test_a_low_port_names_the_remedy():
    assert "1024" in str(start_failed(PermissionError(errno.EACCES, "no"), "0.0.0.0", 80))


class Serving:
    """A small app on a real socket of this loop, and what reading cost."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.charged: list[tuple[str | None, float]] = []
        self.answered: list[int] = []

    def charge(self, scope: Mapping[str, object] | None, host: str | None, cpu_s: float) -> float:
        self.charged.append((host, cpu_s))
        return self.pause_s

    async def __call__(self, scope, receive, send) -> None:
        n_bytes, more = 0, True
        while more:
            message = await receive()
            n_bytes, more = n_bytes + len(message.get("body", b"")), message.get("more_body", False)
        self.answered.append(n_bytes)
        await PlainTextResponse("done")(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        with bind("127.0.0.1", 0) as sock:
            config = server_config(self, "127.0.0.1", 0, self.charge)
            server = Server(config, self.nothing)
            config.lifespan = "off"
            task = asyncio.create_task(server.serve(sockets=[sock]))
            await until(lambda: server.started)
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            try:
                yield reader, writer
            finally:
                writer.close()
                server.should_exit = True
                await task

    async def nothing(self) -> None:
        pass


BEGINNING = b"POST / HTTP/1.1\r\nhost: pc\r\ntransfer-encoding: chunked\r\n\r\n"
N_CHUNKS = 40_000


async def test_a_body_in_chunks_of_one_byte_is_read_in_pieces_and_every_piece_is_charged():
    """The parser takes 5 µs for each: 256 KiB at once, which is what asyncio takes, would hold the loop for 0.2 s."""
    serving = Serving(pause_s=0.0)
    async with serving.running() as (reader, writer):
        writer.write(BEGINNING + b"1\r\nx\r\n" * N_CHUNKS + b"0\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n")
    assert serving.answered == [N_CHUNKS]
    assert len(serving.charged) >= 6 * N_CHUNKS // (16 * 1024)
    assert all(host == "127.0.0.1" and cpu_s > 0 for host, cpu_s in serving.charged)


@pytest.mark.parametrize(("n_bytes", "status"), [(60_000, b"200"), (90_000, b"400")])
async def test_an_address_may_be_long_although_it_is_read_in_pieces(n_bytes, status):
    async with Serving(pause_s=0.0).running() as (reader, writer):
        writer.write(b"GET /?" + b"x" * n_bytes + b" HTTP/1.1\r\nhost: pc\r\n\r\n")
        assert status in await reader.readuntil(b"\r\n")


async def test_whoever_used_up_their_share_is_read_more_slowly_and_loses_nothing():
    serving = Serving(pause_s=0.02)
    async with serving.running() as (reader, writer):
        began_s = asyncio.get_running_loop().time()
        writer.write(BEGINNING + b"1\r\nx\r\n" * N_CHUNKS + b"0\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n")
        took_s = asyncio.get_running_loop().time() - began_s
    assert serving.answered == [N_CHUNKS]
    assert took_s > 0.02 * (len(serving.charged) - 2)
