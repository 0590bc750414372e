"""People who come and ask, and ask again as soon as they are answered: those the self-test expects."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from appliance.chat.preferences import Length
from appliance.engine.backend import Vocabulary
from appliance.metrics.capacity import is_comfortable
from appliance.operate.load_test import answer_tokens, question
from bench.clients import ApiClient, PageClient, as_messages, open_pages
from bench.exchange import Exchange, together
from bench.stats import percentile

LONGEST_ANSWER: Final = max(answer_tokens(number) for number in range(1000))
"""Tokens."""
_LENGTHS: Final[tuple[Length, ...]] = ("short", "medium", "")
"""On the page: 35, 70 and 100 % of the longest, and so as long on average as the self-test's."""
_WARM_S, _LEVEL_S = 3.0, 12.0
_LOOK_S: Final = 0.1
_LEAST_SPAN_S: Final = 0.5
"""Of an answer that came within less nothing is said: the page gathers the text of some tenths of a second."""


@dataclass(frozen=True)
class Seen:
    """What so many people saw."""

    n_people: int
    each_per_s: float
    """Tokens a second of the one in the middle."""
    slow_per_s: float
    """Of the tenth that is slower than nine others."""
    ttft_p90_s: float

    @property
    def is_comfortable(self) -> bool:
        """By the issue's words, as the self-test reads them."""
        return is_comfortable(self.slow_per_s, self.ttft_p90_s)

    def __str__(self) -> str:
        return (
            f"{self.n_people} people: {self.each_per_s:.1f} tokens/s each, the slow ones {self.slow_per_s:.1f}, nine "
            f"in ten first words within {self.ttft_p90_s:.1f} s: {'' if self.is_comfortable else 'not '}comfortable"
        )


class _Person(Protocol):
    """Who asks."""

    async def ask(self, number: int) -> Exchange:
        """Question `number`, in a conversation of its own."""

    async def close(self) -> None:
        """Leave."""


class _OnThePage:
    def __init__(self, page: PageClient) -> None:
        self._page = page

    async def ask(self, number: int) -> Exchange:
        await self._page.new_chat()
        return await self._page.ask(question(number), length=_LENGTHS[number % len(_LENGTHS)])

    async def close(self) -> None:
        await self._page.close()


class _OnTheApi:
    def __init__(self, url: str, system_prompt: str) -> None:
        self._client = ApiClient(url)
        self._system = system_prompt

    async def ask(self, number: int) -> Exchange:
        return await self._client.ask(as_messages(question(number), self._system), answer_tokens(number))

    async def close(self) -> None:
        await self._client.close()


class Colleagues:
    """Belongs to the event loop."""

    def __init__(self, url: str, model: Path, protocol: str, system_prompt: str) -> None:
        self._url = url
        self._vocabulary, self._silence = _vocabulary(model)
        self._protocol = protocol
        self._system_prompt = system_prompt
        self._n_asked = 10**6  # other questions than the self-test's: nothing of those is known

    async def see(self, n_people: int, answer_s: float) -> Seen:
        """So many for a while; they begin one after another over `answer_s`, the time of an answer."""
        people = await self._come(n_people)
        first_s = time.perf_counter() + answer_s + _WARM_S
        last_s = first_s + _LEVEL_S
        asking: dict[int, float] = {}
        over: list[Exchange] = []
        tasks = [
            asyncio.create_task(self._keep_asking(person, answer_s * at / n_people, asking, over))
            for at, person in enumerate(people)
        ]
        try:
            # Whoever asked in that time is waited for, and meanwhile the others go on asking.
            while time.perf_counter() <= last_s or min(asking.values(), default=last_s + 1) <= last_s:
                ended, _ = await asyncio.wait(tasks, timeout=_LOOK_S)
                for task in ended:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.gather(*(person.close() for person in people))
        counted = [one for one in over if first_s <= one.sent_s <= last_s]
        rates = [rate for one in counted if (rate := self._per_s(one)) is not None]
        if not rates:
            raise RuntimeError(f"{n_people} people got no answer that is long enough to tell its speed")
        waits = [one.ttft_s for one in counted]
        return Seen(n_people, statistics.median(rates), percentile(rates, 0.1), percentile(waits, 0.9))

    async def burst(self, n_people: int) -> float:
        """All ask at the same moment, once. Returns in how many seconds nine in ten had their first word."""
        people = await self._come(n_people)
        load = (await together([person.ask(self._next()) for person in people])).check()
        await asyncio.gather(*(person.close() for person in people))
        return load.ttft_s(0.9)

    async def _come(self, n_people: int) -> list[_Person]:
        if self._protocol == "page":
            return [_OnThePage(page) for page in await open_pages(self._url, n_people)]
        return [_OnTheApi(self._url, self._system_prompt) for _ in range(n_people)]

    async def _keep_asking(
        self, person: _Person, delay_s: float, asking: dict[int, float], over: list[Exchange]
    ) -> NoReturn:
        await asyncio.sleep(delay_s)
        while True:
            number = self._next()
            asking[number] = time.perf_counter()
            exchange = await person.ask(number)
            if not exchange.is_ok:
                raise RuntimeError(f"a question failed: {exchange.failure or 'no text'}")
            over.append(exchange)
            del asking[number]

    def _next(self) -> int:
        self._n_asked += 1
        return self._n_asked

    def _per_s(self, exchange: Exchange) -> float | None:
        """Tokens a second from the first text on; None where that was too short to say. A page is told no tokens."""
        took_s = exchange.arrivals_s[-1] - exchange.arrivals_s[0]
        n_tokens = exchange.n_tokens or len(self._vocabulary.tokenize(exchange.text, markers=False))
        return (n_tokens - 1) / took_s if took_s >= _LEAST_SPAN_S else None


def _vocabulary(model: Path) -> tuple[Vocabulary, object]:
    """Of a model file, without its weights; and what has to be kept so that llama.cpp says nothing of it."""
    from llama_cpp import llama_cpp as llama  # here: it takes a second, and only this measurement needs it

    from appliance.engine.llama_backend import LlamaVocabulary
    from appliance.engine.llama_library import make_ready

    silence = llama.llama_log_callback(lambda _level, _text, _data: None)
    llama.llama_log_set(silence, None)
    make_ready()
    params = llama.llama_model_default_params()
    params.vocab_only = True
    return LlamaVocabulary(llama.llama_model_load_from_file(str(model).encode("utf-8"), params)), silence
