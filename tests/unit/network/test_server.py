"""The listening socket: what is set on it, and what the owner is told when it cannot be had."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys

import pytest

from appliance.base.errors import StartFailed
from appliance.network.server import bind, start_failed


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
