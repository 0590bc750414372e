"""What is compared: our program, a peer's server, a `Llama` object; each lives through the same traces."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final

from bench.clients import ApiClient, close_all, open_pages
from bench.exchange import Exchange, Load
from bench.one_at_a_time import OneAtATime
from bench.peers.build import Peers
from bench.peers.people import ApiPerson, PagePerson, Person, PersonInLine, live
from bench.peers.servers import PeerServer, Room, example_server, llama_server
from bench.peers.trace import Trace
from bench.program import Program
from bench.questions import SYSTEM_PROMPT

OURS: Final = "ours"
PEERS: Final = ("llama-server", "example-server", "llama", "one-slot")
COMPILED: Final = ("llama-server", "example-server")
"""Peers that have to be compiled first."""
_LONG_PASTE_CHARS = 20_000


@dataclass(frozen=True)
class Played:
    """A trace as one side lived through it."""

    load: Load
    n_tokens: int
    """Of all complete answers."""
    outside_ms: float = 0.0
    """CPU of our web process a question, ms: everything but the engine."""

    @property
    def answered(self) -> list[Exchange]:
        """What was answered."""
        return [exchange for exchange in self.load.exchanges if exchange.is_ok]

    @property
    def tokens_per_s(self) -> float:
        """Over the whole time."""
        return self.n_tokens / self.load.elapsed_s

    @property
    def requests_per_s(self) -> float:
        """Complete answers a second, over the whole time."""
        return len(self.answered) / self.load.elapsed_s


class Side(ABC):
    """One of those compared, running."""

    @abstractmethod
    def people(self, n: int) -> AbstractAsyncContextManager[list[Person]]:
        """That many people, who leave at the end."""

    async def live(self, trace: Trace, people: Sequence[Person]) -> Played:
        """Let them live through it."""
        load = await live(trace, people)
        return Played(load, sum(e.n_tokens for e in load.exchanges if e.is_ok))

    async def play(self, trace: Trace) -> Played:
        """Live through it with people of its own."""
        async with self.people(len(trace)) as people:
            return await self.live(trace, people)


class OurSide(Side):
    """Our program, through its API or through its page."""

    def __init__(self, program: Program, protocol: str) -> None:
        self._program = program
        self._protocol = protocol

    async def live(self, trace: Trace, people: Sequence[Person]) -> Played:
        """See `Side`."""
        n_before, before_s = len(self._program.counts()), self._program.cpu_s()["web"]
        played = await super().live(trace, people)
        outside_s = self._program.cpu_s()["web"] - before_s
        n_tokens = played.n_tokens
        if self._protocol == "page":  # a page is not told
            n_tokens = sum(counts[2] for counts in self._program.counts_since(n_before, len(played.answered)))
        return Played(played.load, n_tokens, 1000 * outside_s / len(played.load.exchanges))

    @contextlib.asynccontextmanager
    async def people(self, n: int) -> AsyncIterator[list[Person]]:
        """See `Side`."""
        if self._protocol == "page":
            pages = await open_pages(self._program.url, n)
            try:
                yield [PagePerson(page) for page in pages]
            finally:
                await close_all(pages)
        else:
            async with _on_api(self._program.url, n) as people:
                yield people


class PeerSide(Side):
    """A peer's server."""

    def __init__(self, server: PeerServer) -> None:
        self._server = server

    def people(self, n: int) -> AbstractAsyncContextManager[list[Person]]:
        """See `Side`."""
        return _on_api(self._server.url, n)


class LineSide(Side):
    """Everybody in one line in front of a `Llama` object."""

    def __init__(self, llama: OneAtATime) -> None:
        self._llama = llama

    @contextlib.asynccontextmanager
    async def people(self, n: int) -> AsyncIterator[list[Person]]:
        """See `Side`."""
        line = asyncio.Lock()  # first come, first served
        yield [PersonInLine(self._llama, line) for _ in range(n)]


@contextlib.asynccontextmanager
async def _on_api(url: str, n: int) -> AsyncIterator[list[Person]]:
    api = ApiClient(url)
    try:
        yield [ApiPerson(api, f"user {i}") for i in range(n)]
    finally:
        await api.close()


def our_program(room: Room, max_tokens: int, settings: Mapping[str, object] | None = None) -> Program:
    """Ours with that room; people queue rather than hear that it is busy, as the peers have it."""
    chosen = {
        "max_batch_size": room.n_slots,
        "max_context_tokens": room.n_ctx,
        "max_answer_tokens": max_tokens,
        "max_input_chars": _LONG_PASTE_CHARS,
        "queue_size": 200,
        "n_threads": room.n_threads,
        "system_prompt": SYSTEM_PROMPT,
        **(settings or {}),
    }
    return Program(room.model, chosen)


@contextlib.contextmanager
def started(
    kind: str,
    room: Room,
    *,
    max_tokens: int,
    protocol: str,
    peers: Peers | None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Side]:
    """OURS or one of PEERS, ready. `one-slot` is our own program answering one at a time.

    Args:
        settings: of our program.
        peers: needed by COMPILED.
    """
    if kind in COMPILED:
        assert peers is not None
        with (llama_server if kind == "llama-server" else example_server)(peers, room) as server:
            server.wait_ready()
            yield PeerSide(server)
    elif kind == "llama":
        with OneAtATime(room.model, room.n_threads, room.n_ctx, reuses=False) as llama:
            yield LineSide(llama)
    else:
        room = replace(room, n_slots=1) if kind == "one-slot" else room
        with our_program(room, max_tokens, settings) as program:
            program.wait_ready()
            yield OurSide(program, protocol)
