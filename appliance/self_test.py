"""The self-test: how many people this PC serves comfortably with this model, measured on the running engine.

It asks as people do, so many at a time, each again as soon as answered, and finds the largest number for which nearly
everybody reads at 4 tokens a second or more and sees a first word within 3 s. It goes past admission, saved answers and
other people's questions: what is measured is the engine. Nobody else should chat meanwhile, or they are measured too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Protocol

from appliance.capacity import COMFORTABLE_PER_S, COMFORTABLE_TTFT_S
from appliance.engine.cpu import available_ram_bytes
from appliance.engine.request import Delta, EngineInfo, Finished, FinishReason, Message, Request
from appliance.engine_link import Engine, Stream
from appliance.errors import ApplianceError, NotReady
from appliance.paths import Paths
from appliance.private_file import write_private
from appliance.settings import Settings

if TYPE_CHECKING:
    from appliance.tuning.tuner import Progress

_log = logging.getLogger(__name__)

_WARM_S: Final = 2.0
"""Left out at the beginning of a level: they all ask at the same moment, which people do not."""
_LEVEL_S: Final = 9.0
_LEAST_TOKENS, _SPREAD_TOKENS = 24, 48
"""Answers are of many lengths, or everybody would ask again at the same moment."""
_USUAL_ANSWER_TOKENS: Final = 100
_TUNE_S: Final = 100.0
"""Three minutes in all: tuning may take so long, then the levels follow, five or six of them."""
_N_ROUNDS: Final = 1
_TUNE_SHARE: Final = 0.55
_LOOK_S: Final = 0.5
_PATIENCE_S: Final = 15.0
"""Who waits no longer than that for a slot counts as served with waiting."""
_QUESTIONS: Final = (
    "How do I write a polite reminder about invoice number {n}?",
    "请用两句话说明会议纪要应该包含哪些内容，编号 {n}。",
    "Give me three ideas for meeting number {n} of a small team.",
    "请把下面这句话改得更礼貌：请尽快把第 {n} 份文件发给我。",
    "Explain in two sentences what a purchase order with number {n} is for.",
    "请列出整理办公室的三个步骤，第 {n} 次。",
)


@dataclass(frozen=True)
class Level:
    """So many people asking at once."""

    n_people: int
    each_per_s: float
    """Tokens a second of the answer in the middle."""
    slow_per_s: float
    """Of the tenth that is slower than nine others."""
    ttft_p90_s: float

    @property
    def is_comfortable(self) -> bool:
        """Whether nearly everybody reads comfortably."""
        return self.slow_per_s >= COMFORTABLE_PER_S and self.ttft_p90_s < COMFORTABLE_TTFT_S


@dataclass(frozen=True)
class Verdict:
    """What the self-test promises."""

    model_name: str
    fingerprint: str
    """Of the model it was measured with."""
    people: int
    """Comfortable at once; 0 where even one is not."""
    each_per_s: float
    """Tokens a second for each of them."""
    with_waiting: int
    """As many can ask at once when some may wait up to 15 s for their first word."""
    ttft_p90_s: float
    free_memory_bytes: int
    free_disk_bytes: int
    at: float
    """Unix time in s."""


Phase = Literal["idle", "tuning", "measuring", "done", "stopped", "failed"]


@dataclass(frozen=True)
class SelfTestState:
    """How far it is. `share` goes from 0 to 1."""

    phase: Phase = "idle"
    share: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.phase in ("tuning", "measuring")


async def find_limit(measure: Callable[[int], Awaitable[Level]], n_slots: int) -> Level:
    """The level of the most people that is comfortable; where none is, that of one. Halves the range again and again.

    Args:
        measure: measures so many people.
    """
    best = await measure(1)
    if not best.is_comfortable or n_slots == 1:
        return best
    top = await measure(n_slots)
    if top.is_comfortable:
        return top
    low, high = 1, n_slots
    while high - low > max(1, n_slots // 16):
        middle = (low + high) // 2
        level = await measure(middle)
        if level.is_comfortable:
            best, low = level, middle
        else:
            high = middle
    return best


def with_waiting(level: Level) -> int:
    """How many can ask at once when some may wait: those whom a place comes free for in time."""
    if not level.is_comfortable:
        return 1
    answers_per_s = level.n_people * level.each_per_s / _USUAL_ANSWER_TOKENS
    return level.n_people + int(_PATIENCE_S * answers_per_s)


class Crowd:
    """People who ask and ask again. Belongs to the event loop."""

    def __init__(self, engine: Engine, system_prompt: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._system = Message("system", system_prompt)
        self._clock = clock
        self._n_asked = 0

    async def measure(self, n_people: int, warm_s: float = _WARM_S, level_s: float = _LEVEL_S) -> Level:
        """So many at a time for so long. Raises ApplianceError when the engine cannot answer."""
        began, asked = self._clock(), list[_Asked]()
        people = {asyncio.create_task(self._person(asked)) for _ in range(n_people)}
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
        counted = [one for one in asked if one.asked_at >= began + warm_s and one.says_something(now)] or asked
        rates = sorted(one.per_s for one in counted if one.per_s)
        waits = sorted(one.ttft_s(now) for one in counted)
        if not rates:
            raise ApplianceError("The engine gave no answers to measure.")
        level = Level(n_people, _share(rates, 0.5), _share(rates, 0.1), _share(waits, 0.9))
        _log.info(
            "self-test, %s at once: %.1f tokens/s each, the slow ones %.1f, first word %.1f s",
            n_people,
            level.each_per_s,
            level.slow_per_s,
            level.ttft_p90_s,
        )
        return level

    async def _person(self, asked: list[_Asked]) -> NoReturn:
        """Ask until cancelled."""
        while True:
            asked.append(self._ask())
            await self._read(asked[-1])

    def _ask(self) -> _Asked:
        self._n_asked += 1
        question = _QUESTIONS[self._n_asked % len(_QUESTIONS)].format(n=self._n_asked)
        request = Request(
            request_id=secrets.token_hex(12),
            messages=(self._system, Message("user", question)),
            max_tokens=_LEAST_TOKENS + 11 * self._n_asked % _SPREAD_TOKENS,
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
        self.first_at = self.last_at = 0.0
        self.n_first = self.n_tokens = 0

    def note(self, now: float, n_tokens: int) -> None:
        """So many tokens came."""
        if not self.n_tokens:
            self.first_at, self.n_first = now, n_tokens
        self.last_at = now
        self.n_tokens += n_tokens

    def says_something(self, now: float) -> bool:
        """Whether it counts: not one that was just asked when the time was up."""
        return bool(self.first_at) or now - self.asked_at >= COMFORTABLE_TTFT_S

    def ttft_s(self, now: float) -> float:
        """From the question to the first tokens, or until now where there are none."""
        return (self.first_at or now) - self.asked_at

    @property
    def per_s(self) -> float:
        """Tokens a second from the first ones on; 0 for an answer too short to say."""
        took_s = self.last_at - self.first_at
        return (self.n_tokens - self.n_first) / took_s if took_s > 0 else 0.0


class Bench(Protocol):
    """What the self-test needs of the program."""

    @property
    def engine(self) -> Engine:
        """Who answers."""

    @property
    def model_source(self) -> Path | None:
        """The owner's file of the model that answers."""

    @property
    def settings(self) -> Settings:
        """What is set."""

    async def use_model(self, source: Path) -> EngineInfo:
        """Load the best form of that file."""


class SelfTest:
    """One at a time; three minutes at most. Belongs to the event loop."""

    def __init__(self, bench: Bench, paths: Paths) -> None:
        self._bench = bench
        self._paths = paths
        self._task: asyncio.Task[None] | None = None
        self._stopped = threading.Event()
        self.state = SelfTestState()
        self.verdict = read_verdict(paths.self_test)
        """Of the last one that came to its end."""

    @property
    def is_of_this_model(self) -> bool:
        """Whether the verdict is about the model that answers now."""
        info = self._bench.engine.info
        return self.verdict is not None and info is not None and info.fingerprint == self.verdict.fingerprint

    def begin(self, *, tune: bool) -> None:
        """Start it, with tuning first where that is wanted; nothing where one runs. How it goes is in `state`."""
        if not self.state.is_running:
            self._stopped.clear()
            self.state = SelfTestState("tuning" if tune else "measuring")
            self._task = asyncio.get_running_loop().create_task(self._run(tune=tune))

    def stop(self) -> None:
        """End it; nothing has changed then but what tuning had finished."""
        self._stopped.set()
        if self._task is not None and self.state.phase == "measuring":
            self._task.cancel()

    async def wait(self) -> None:
        """Until the one that runs is over."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self, *, tune: bool) -> None:
        try:
            if tune:
                await self._tune()
            if self._stopped.is_set():
                self.state = SelfTestState("stopped")
                return
            self.verdict = await self._measure()
            await asyncio.to_thread(_write_verdict, self._paths.self_test, self.verdict)
            self.state = SelfTestState("done", 1.0)
        except asyncio.CancelledError:
            self.state = SelfTestState("stopped")
        except ApplianceError as error:
            _log.error("the self-test failed: %s", error)
            self.state = SelfTestState("failed")

    async def _tune(self) -> None:
        """Find the form of the model that is fastest here, and load it. Where that cannot be done, it is left out."""
        source = self._bench.model_source
        if source is None:
            return
        from appliance.tuning.tuner import Tuner  # here: its libraries are of no use before

        settings = self._bench.settings
        config, bound = settings.engine_config(source), settings.tuning_max_kl
        tuner = Tuner(source, self._paths.tuned, config, bound, self._tuned_so_far, n_rounds=_N_ROUNDS)
        running = asyncio.create_task(asyncio.to_thread(tuner.run))
        until = time.monotonic() + _TUNE_S
        while not running.done():
            await asyncio.wait({running}, timeout=_LOOK_S)
            if self._stopped.is_set() or time.monotonic() > until:
                tuner.cancel()
        try:
            if (await running).file is not None:
                await self._bench.use_model(source)
        except ApplianceError as error:
            _log.warning("the self-test goes on without tuning: %s", error)

    def _tuned_so_far(self, progress: Progress) -> None:
        """On the tuner's thread."""
        self.state = SelfTestState("tuning", _TUNE_SHARE * progress.number / max(1, progress.n_steps))

    async def _measure(self) -> Verdict:
        self.state = SelfTestState("measuring", max(self.state.share, 0.0))
        began, n_levels = self.state.share, 0
        settings, info = self._bench.settings, self._bench.engine.info
        if info is None:
            raise NotReady("the engine is not ready")
        crowd = Crowd(self._bench.engine, settings.system_prompt)

        async def level(n_people: int) -> Level:
            nonlocal n_levels
            n_levels += 1
            measured = await crowd.measure(n_people)
            self.state = SelfTestState("measuring", began + (1 - began) * n_levels / (n_levels + 2))
            return measured

        best = await find_limit(level, info.n_slots)
        return Verdict(
            model_name=info.model_name,
            fingerprint=info.fingerprint,
            people=best.n_people if best.is_comfortable else 0,
            each_per_s=best.each_per_s,
            with_waiting=with_waiting(best),
            ttft_p90_s=best.ttft_p90_s,
            free_memory_bytes=available_ram_bytes(),
            free_disk_bytes=shutil.disk_usage(self._paths.data_dir).free,
            at=time.time(),
        )


def read_verdict(path: Path) -> Verdict | None:
    """That of the last self-test; None before the first, or when it cannot be read."""
    try:
        return Verdict(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        _log.warning("the last self-test cannot be read (%s)", type(error).__name__)
        return None


def _write_verdict(path: Path, verdict: Verdict) -> None:
    try:
        write_private(path, json.dumps(asdict(verdict), ensure_ascii=False).encode())
    except OSError as error:
        _log.warning("the self-test is not remembered (%s)", error.strerror)


def _share(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share of them does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
