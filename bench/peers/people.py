"""People who live through a trace: on the API of any server, on our page, and in front of a `Llama` object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from bench.clients import ApiClient, PageClient, as_messages
from bench.exchange import Exchange, Load, together
from bench.one_at_a_time import OneAtATime, Sampling
from bench.peers.trace import Ask, Trace
from bench.questions import SYSTEM_PROMPT

SAMPLING = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
"""Asked of every server alike. What one adds by itself stays: ours penalises repetition, llama-server cuts at min_p."""


class Person(Protocol):
    """Somebody who asks."""

    async def begin(self) -> None:
        """Leave the last conversation."""

    async def ask(self, text: str, max_tokens: int) -> Exchange:
        """The next question of the conversation."""


class ApiPerson:
    """Sends the whole conversation each time, as programs do."""

    def __init__(self, api: ApiClient, user: str, system_prompt: str = SYSTEM_PROMPT) -> None:
        self._api = api
        self._user = user
        self._first = _instructed(system_prompt)
        self._messages = [*self._first]

    async def begin(self) -> None:
        """See `Person`."""
        self._messages = [*self._first]

    async def ask(self, text: str, max_tokens: int, arrivals: list[float] | None = None) -> Exchange:
        """See `Person`. `arrivals` fills as the answer comes."""
        self._messages += as_messages(text)
        exchange = await self._api.ask(self._messages, max_tokens, arrivals=arrivals, user=self._user, **SAMPLING)
        self._messages.append({"role": "assistant", "content": exchange.text})
        return exchange


class PagePerson:
    """Has our page open. How long answers get is the program's setting there."""

    def __init__(self, page: PageClient) -> None:
        self._page = page
        self._has_asked = False

    async def begin(self) -> None:
        """See `Person`."""
        if self._has_asked:
            await self._page.new_chat()

    async def ask(self, text: str, max_tokens: int) -> Exchange:
        """See `Person`."""
        self._has_asked = True
        return await self._page.ask(text)


class PersonInLine:
    """Waits until the one `Llama` object has answered everybody who came before."""

    def __init__(self, llama: OneAtATime, line: asyncio.Lock) -> None:
        self._llama = llama
        self._line = line
        self._messages = _instructed(SYSTEM_PROMPT)

    async def begin(self) -> None:
        """See `Person`."""
        self._messages = _instructed(SYSTEM_PROMPT)

    async def ask(self, text: str, max_tokens: int) -> Exchange:
        """See `Person`. The answer comes in one piece."""
        self._messages += as_messages(text)
        sent_s = time.perf_counter()
        async with self._line:
            (answered,) = await self._llama.answer([self._messages], max_tokens, Sampling())
        end_s = time.perf_counter()
        self._messages.append({"role": "assistant", "content": answered.text})
        return Exchange(sent_s, (end_s,), end_s, n_tokens=answered.n_tokens, text=answered.text)


def _instructed(system_prompt: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system_prompt}] if system_prompt else []


async def live(trace: Trace, people: Sequence[Person]) -> Load:
    """Everybody at the same time."""
    return await together([_ask_all(asks, person) for asks, person in zip(trace, people, strict=True)])


async def _ask_all(asks: Sequence[Ask], person: Person) -> list[Exchange]:
    exchanges = []
    for ask in asks:
        if ask.wait_s:
            await asyncio.sleep(ask.wait_s)
        if ask.is_new:
            await person.begin()
        exchanges.append(await person.ask(ask.text, ask.max_tokens))
    return exchanges
