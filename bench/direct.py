"""Our engine without page and web server: its process, and questions put straight to it."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from appliance.engine.client import EngineClient
from appliance.engine.config import EngineConfig
from appliance.engine.request import Delta, Finished, FinishReason, Message, Request, SamplingParams, Started
from appliance.engine.stream import TokenStream
from bench.exchange import Exchange

_ids = itertools.count()


def questions_to(text: str, system_prompt: str) -> tuple[Message, ...]:
    """One question as the engine takes it."""
    return (Message("system", system_prompt), Message("user", text))


class DirectEngine:
    """Asks a running engine. Every piece of text carries the time it came out of the engine's connection."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    def submit(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        *,
        sampling: SamplingParams | None = None,
        person: str = "",
        conversation: str = "",
    ) -> TokenStream:
        """Send the question; it runs whether or not somebody reads."""
        request = Request(
            request_id=f"bench-{next(_ids)}",
            messages=tuple(messages),
            max_tokens=max_tokens,
            sampling=sampling or SamplingParams(),
            person=person,
            conversation=conversation,
        )
        return self._client.submit(request)

    async def ask(self, messages: Sequence[Message], max_tokens: int, **options: object) -> Exchange:
        """One answer to its end. `options` as for `submit`."""
        sent_s = time.perf_counter()
        return await read(self.submit(messages, max_tokens, **options), sent_s)  # type: ignore[arg-type]


async def read(stream: TokenStream, sent_s: float, arrivals: list[float] | None = None) -> Exchange:
    """Follow an answer; `arrivals` fills as it goes, for whoever wants to look before the end."""
    arrivals = [] if arrivals is None else arrivals
    pieces: list[str] = []
    async for update in stream:
        match update:
            case Delta():
                arrivals.append(time.perf_counter())
                pieces.append(update.text)
            case Finished():
                failure = (update.error or "aborted") if update.reason in _FAILED else ""
                counts = (update.n_decoded, update.n_prompt, update.n_cached)
                return Exchange(sent_s, tuple(arrivals), time.perf_counter(), *counts, "".join(pieces), failure)
            case Started():
                pass
    raise AssertionError("a stream without an end")


_FAILED = (FinishReason.ERROR, FinishReason.ABORT)


@contextlib.asynccontextmanager
async def engine(
    model: Path, n_threads: int, env: Mapping[str, str] | None = None, **config: object
) -> AsyncIterator[DirectEngine]:
    """An engine that is ready. Stepping back for others is off unless asked for: the clients here are the others.

    Args:
        env: set in the engine's process alone; OpenMP reads its variables when it is loaded.
        config: fields of EngineConfig.
    """
    chosen = replace(EngineConfig(model_path=model, n_threads=n_threads, yields=False), **config)  # type: ignore[arg-type]
    client = EngineClient(chosen)
    with _environment(env or {}):
        client.spawn()
    await client.start()
    try:
        await client.wait_ready()
        yield DirectEngine(client)
    finally:
        await client.close()


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """A spawned process inherits ours as it is at that moment."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
