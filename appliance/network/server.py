"""The listening socket and the HTTP server: taken ports are named, signals drain instead of kill."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from appliance.base.errors import StartFailed
from appliance.base.terminal import ending_signals

_log = logging.getLogger(__name__)

_GRACEFUL_S = 2
_DEAD_PEER_MS = 10_000
"""A peer that acknowledges nothing for so long has lost its network (Linux; elsewhere keep-alive alone finds out)."""
_KEEPALIVE_IDLE_S = 10
_KEEPALIVE_EVERY_S = 5
_BACKLOG = 256
_READ_BYTES = 16 * 1024
"""At a time from one connection: as chunks of one byte each they take 15 ms to read."""

_HEADER_BYTES = 64 * 1024
"""Request line and headers together: the address of an event stream carries a whole question, percent-encoded."""

Charge = Callable[[Mapping[str, object] | None, str | None, float], float]


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: who comes too early is refused at once instead of waiting.

    Raises:
        StartFailed: with the port or address and the remedy.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off on every connection. With it on, the body of a reply
    # waits for the acknowledgement of its headers, which takes 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":
            # There, SO_REUSEADDR would let a second program take the port over.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _find_dead_peers(sock)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise start_failed(error, host, port) from error
    return sock


def start_failed(error: OSError, host: str, port: int) -> StartFailed:
    """What the owner is told when the address cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return StartFailed(
            f"port = {port}: another program uses this port, perhaps this one started twice. "
            "Close it, or choose another port with --port."
        )
    if error.errno == errno.EACCES:
        return StartFailed(f"port = {port}: this user may not use it. Choose one from 1024 up with --port.")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return StartFailed(f"host = {host}: this PC has no such address. Use 0.0.0.0 or 127.0.0.1 with --host.")
    return StartFailed(f"{host}:{port} cannot be opened: {error.strerror or type(error).__name__}.")


class Server(uvicorn.Server):
    """uvicorn, but a signal first lets the answers end, and the process then exits with code 0."""

    def __init__(self, config: uvicorn.Config, before_shutdown: Callable[[], Awaitable[None]]) -> None:
        """`before_shutdown` runs after the first signal, while connections are still served."""
        super().__init__(config)
        self._before_shutdown = before_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then what uvicorn does."""
        await self._before_shutdown()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end: having drained is a success."""
        numbers = {*HANDLED_SIGNALS, *ending_signals()}
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; a second one ends at once."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


class _Charged(H11Protocol):
    """One connection, read in small pieces; whoever makes that costly is read more slowly."""

    def __init__(self, *args: Any, charge: Charge, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self._charge = charge

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio's own, where it waits for sockets (not on Windows)
            transport.max_size = _READ_BYTES

    def data_received(self, data: bytes) -> None:
        began_s = time.thread_time()
        super().data_received(data)
        cost_s = time.thread_time() - began_s
        pause_s = self._charge(self.scope, self.client[0] if self.client else None, cost_s)
        if pause_s and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_later(pause_s, self._read_on)

    def _read_on(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()


def server_config(
    app: Callable[..., Awaitable[None]],
    host: str,
    port: int,
    charge: Charge = lambda scope, host, cpu_s: 0.0,
) -> uvicorn.Config:
    """No access log (a query may hold a question), no trust in forwarded headers, no word about the software.

    `charge` is told the CPU time of reading, with the newest request's scope and the peer's address; it returns for how
    many seconds no more is to be read from there.
    """
    return uvicorn.Config(
        app,
        http=partial(_Charged, charge=charge),  # type: ignore[arg-type]  # called like the class
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="none",
        h11_max_incomplete_event_size=_HEADER_BYTES,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACEFUL_S,
    )


def _find_dead_peers(sock: socket.socket) -> None:
    """Accepted sockets inherit these on Linux; platforms without an option do without."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_USER_TIMEOUT": _DEAD_PEER_MS,
        "TCP_KEEPIDLE": _KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": _KEEPALIVE_EVERY_S,
        "TCP_KEEPCNT": 2,
    }
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
