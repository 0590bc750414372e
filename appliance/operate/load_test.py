"""People who ask, and ask again as soon as they are answered: what a number of them sees of the engine.

They are put to the engine itself, past admission, saved answers and other people's questions.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from appliance.answers.engine_link import Engine, Stream
from appliance.base.errors import ApplianceError
from appliance.engine.request import Delta, Finished, FinishReason, Message, Request
from appliance.metrics.capacity import COMFORTABLE_TTFT_S, is_comfortable

_log = logging.getLogger(__name__)

_LEAST_TOKENS, _SPREAD_TOKENS = 60, 81
"""Answers are of many lengths, or everybody would ask again at the same moment; on average of
`config.USUAL_ANSWER_TOKENS`."""
_WARM_S: Final = 2.5
"""Left out at the beginning: they all ask at the same moment, which people do not."""
_LEVEL_S: Final = 9.5
_LEAST_SPAN_S: Final = 1.5
_LEAST_SEEN: Final = 6
"""Of an answer of which fewer tokens were seen, and for a shorter time, nothing is said."""
_QUESTIONS: Final = (
    "How do I write a polite reminder about invoice number {n}?",
    "请用两句话说明会议纪要应该包含哪些内容，编号 {n}。",
    "Give me three ideas for meeting number {n} of a small team.",
    "请把下面这句话改得更礼貌：请尽快把第 {n} 份文件发给我。",
    "Explain in two sentences what a purchase order with number {n} is for.",
    "请列出整理办公室的三个步骤，第 {n} 次。",
)


def question(number: int) -> str:
    """An everyday one, half of them in Chinese; no two numbers give the same."""
    return _QUESTIONS[number % len(_QUESTIONS)].format(n=number)


def answer_tokens(number: int) -> int:
    """How long the answer to it may be."""
    return _LEAST_TOKENS + 31 * number % _SPREAD_TOKENS


@dataclass(frozen=True)
class Level:
    """So many people asking at once."""

    n_people: int
    each_per_s: float
    """Tokens a second of the answer in the middle."""
    slow_per_s: float
    """Of the tenth that is slower than nine others."""
    ttft_p90_s: float
    all_per_s: float
    """Tokens a second that all of them get together, waiting and reading of questions included."""

    @property
    def is_comfortable(self) -> bool:
        """Whether nearly everybody reads comfortably."""
        return is_comfortable(self.slow_per_s, self.ttft_p90_s)


class LoadTest:
    """Belongs to the event loop."""

    def __init__(self, engine: Engine, system_prompt: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._system = Message("system", system_prompt)
        self._clock = clock
        self._n_asked = 0

    async def measure(self, n_people: int, warm_s: float = _WARM_S, level_s: float = _LEVEL_S) -> Level:
        """So many at a time for so long. Raises ApplianceError when the engine cannot answer."""
        warm_at, asked = self._clock() + warm_s, list[_Asked]()
        people = {asyncio.create_task(self._person(asked, (at + 1) / n_people)) for at in range(n_people)}
        try:
            await asyncio.wait(people, timeout=warm_s + level_s, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for person in people:
                person.cancel()
            await asyncio.wait(people)
        for error in [person.exception() for person in people if not person.cancelled()]:
            if error is not None:
                raise error
        now = self._clock()
        rates = sorted(rate for one in asked if (rate := one.per_s(warm_at)) is not None)
        if not rates:
            raise ApplianceError("The engine gave no answers to measure.")
        waits = [one.ttft_s(now) for one in asked if one.asked_at >= warm_at and one.tells_its_wait(now)]
        waits = sorted(waits or [one.ttft_s(now) for one in asked])
        level = Level(
            n_people,
            each_per_s=_share(rates, 0.5),
            slow_per_s=_share(rates, 0.1),
            ttft_p90_s=_share(waits, 0.9),
            all_per_s=sum(one.n_since(warm_at) for one in asked) / max(now - warm_at, 0.001),
        )
        _log.info(
            "self-test, %s at once: %.1f tokens/s each, the slow ones %.1f, all %.0f, first word %.1f s",
            n_people,
            level.each_per_s,
            level.slow_per_s,
            level.all_per_s,
            level.ttft_p90_s,
        )
        return level

    async def _person(self, asked: list[_Asked], share: float) -> NoReturn:
        """Ask until cancelled. Of the first answer only a share is left, as if they had come one after another."""
        while True:
            asked.append(self._ask(share))
            await self._read(asked[-1])
            share = 1.0

    def _ask(self, share: float) -> _Asked:
        self._n_asked += 1
        request = Request(
            request_id=secrets.token_hex(12),
            messages=(self._system, Message("user", question(self._n_asked))),
            max_tokens=max(1, int(share * answer_tokens(self._n_asked))),
            person=f"self-test {self._n_asked}",
        )
        return _Asked(self._engine.submit(request), self._clock())

    async def _read(self, asked: _Asked) -> None:
        try:
            async for update in asked.stream:
                if isinstance(update, Delta) and update.token_ids:
                    asked.note(self._clock(), len(update.token_ids))
                elif isinstance(update, Finished) and update.reason is FinishReason.ERROR:
                    raise ApplianceError("The engine failed while it was measured.")
        except asyncio.CancelledError:
            asked.stream.abort()
            raise


class _Asked:
    """One question and when its answer came."""

    def __init__(self, stream: Stream, asked_at: float) -> None:
        self.stream = stream
        self.asked_at = asked_at
        self._pieces: list[tuple[float, int]] = []
        """Moment and tokens of each."""

    def note(self, now: float, n_tokens: int) -> None:
        """So many tokens came."""
        self._pieces.append((now, n_tokens))

    def tells_its_wait(self, now: float) -> bool:
        """Whether it counts: not one that was just asked when the time was up."""
        return bool(self._pieces) or now - self.asked_at >= COMFORTABLE_TTFT_S

    def ttft_s(self, now: float) -> float:
        """From the question to the first tokens, or until now where there are none."""
        return (self._pieces[0][0] if self._pieces else now) - self.asked_at

    def n_since(self, moment: float) -> int:
        """Tokens that came from that moment on."""
        return sum(n for at, n in self._pieces if at >= moment)

    def per_s(self, moment: float) -> float | None:
        """Tokens a second as its reader saw them from that moment on; None where that was too short to say."""
        seen = [piece for piece in self._pieces if piece[0] >= moment]
        took_s = seen[-1][0] - seen[0][0] if seen else 0.0
        n_tokens = sum(n for _, n in seen[1:])
        is_enough = took_s >= _LEAST_SPAN_S or (took_s > 0 and n_tokens >= _LEAST_SEEN)
        return n_tokens / took_s if is_enough else None


def _share(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share of them does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
