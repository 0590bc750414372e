"""One question with its answer as its client saw it, and what many of them together say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.stats import percentile


@dataclass(frozen=True)
class Exchange:
    """Times are seconds of one monotonic clock."""

    sent_s: float
    arrivals_s: tuple[float, ...]
    """When new answer text became visible."""
    end_s: float
    n_tokens: int = 0
    """Of the answer; 0 where the client is not told (the page)."""
    n_prompt: int = 0
    n_cached: int = 0
    text: str = ""
    failure: str = ""
    """Empty for an answer that is complete; else a status or the name of an error."""

    @property
    def is_ok(self) -> bool:
        """Whether it was answered."""
        return not self.failure and bool(self.arrivals_s)

    @property
    def ttft_s(self) -> float:
        """From sending to the first visible text."""
        return self.arrivals_s[0] - self.sent_s

    @property
    def took_s(self) -> float:
        """From sending to the end of the answer."""
        return self.end_s - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Between two pieces of visible text."""
        return [later - earlier for earlier, later in pairwise(self.arrivals_s)]


@dataclass(frozen=True)
class Load:
    """Exchanges that ran together."""

    exchanges: tuple[Exchange, ...]
    client_cores: float
    """CPU of the clients, in cores: they share the machine with the server here."""

    @property
    def elapsed_s(self) -> float:
        """From the first question to the last answer's end."""
        return max(e.end_s for e in self.exchanges) - min(e.sent_s for e in self.exchanges)

    @property
    def ttfts_s(self) -> list[float]:
        """Of those that were answered."""
        return [exchange.ttft_s for exchange in self.exchanges if exchange.is_ok]

    @property
    def gaps_s(self) -> list[float]:
        """Of all answers together."""
        return [gap for exchange in self.exchanges for gap in exchange.gaps_s]

    @property
    def n_failed(self) -> int:
        """Exchanges without a complete answer."""
        return sum(not exchange.is_ok for exchange in self.exchanges)

    @property
    def tokens_per_s(self) -> float:
        """Answer tokens a second over the whole time."""
        return sum(exchange.n_tokens for exchange in self.exchanges) / self.elapsed_s

    def ttft_s(self, share: float) -> float:
        """A percentile of the time to first text."""
        return percentile(self.ttfts_s, share)

    def gap_s(self, share: float) -> float:
        """A percentile of the gaps; 0 where every answer came in one piece."""
        return percentile(self.gaps_s or [0.0], share)

    def took_s(self, share: float) -> float:
        """A percentile of the time to the answer's end."""
        return percentile([exchange.took_s for exchange in self.exchanges if exchange.is_ok], share)

    def ms(self, what: str) -> float:
        """A percentile in ms by its name in the tables: `ttft p50`, `gap p99`, `answer's end p90`."""
        name, _, share = what.rpartition(" p")
        values = {"ttft": self.ttft_s, "gap": self.gap_s, "answer's end": self.took_s}
        return 1000 * values[name](int(share) / 100)

    def check(self) -> Load:
        """Refuse to take times from a run in which something went wrong."""
        if self.n_failed:
            failures = sorted({exchange.failure or "no text" for exchange in self.exchanges if not exchange.is_ok})
            raise RuntimeError(f"{self.n_failed} of {len(self.exchanges)} questions failed: {', '.join(failures)}")
        return self


def gaps_between(streams: Sequence[Sequence[float]], began_s: float, ended_s: float) -> list[float]:
    """Gaps of running streams that touch that time, s; each stream is the moments of its pieces of text."""
    return [b - a for moments in streams for a, b in pairwise(moments) if began_s <= b and a <= ended_s]


def all_beyond(moment_s: float, tasks: Sequence[asyncio.Task[Any]], streams: Sequence[Sequence[float]]) -> bool:
    """Whether every stream has had a piece since, or has ended: the gap that begins before ends with the next piece."""
    return all(task.done() or moments[-1] > moment_s for task, moments in zip(tasks, streams, strict=True))


async def together(asked: Sequence[Awaitable[Exchange | Sequence[Exchange]]]) -> Load:
    """Run all at once; each may be one exchange or a person's exchanges one after another."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    found = await asyncio.gather(*asked)
    elapsed_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    exchanges = tuple(one for item in found for one in ((item,) if isinstance(item, Exchange) else item))
    return Load(exchanges, cpu_s / elapsed_s)
