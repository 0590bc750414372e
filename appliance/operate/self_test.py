"""The self-test: how many people this PC serves comfortably with this model, measured on the running engine.

It asks as people do, so many at a time, each again as soon as answered, and finds the largest number for which nearly
everybody reads at 4 tokens a second or more and sees a first word within 3 s. It goes past admission, saved answers and
other people's questions: what is measured is the engine. Nobody else should chat meanwhile, or they are measured too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from appliance.answers.engine_link import Engine
from appliance.base.errors import ApplianceError, NotReady
from appliance.base.paths import Paths
from appliance.base.private_file import write_private
from appliance.engine.config import USUAL_ANSWER_TOKENS
from appliance.engine.cpu import available_ram_bytes, thread_count
from appliance.engine.request import EngineInfo
from appliance.operate.load_test import Level, LoadTest
from appliance.settings.schema import Settings
from appliance.tuning.threads import for_this_cpu, tune_threads

if TYPE_CHECKING:
    from appliance.tuning.tuner import Progress

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TUNE_S: Final = 88.0
"""Three minutes in all: tuning may take so long, then the levels follow, four to seven of them."""
_N_ROUNDS: Final = 1
_THREADS_SHARE, _TUNE_SHARE = 0.08, 0.55
"""How far it is when the number of threads is known, and when the form of the model is."""
_LOOK_S: Final = 0.5
_PATIENCE_S: Final = 15.0
"""Who waits no longer than that for a slot counts as served with waiting."""
_NEAR: Final = 0.13
"""Of the number of people: near enough."""


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
    n_threads: int = 0
    """Of the engine; 0 in a verdict of before they were kept."""


Phase = Literal["idle", "tuning", "measuring", "done", "stopped", "failed"]


@dataclass(frozen=True)
class SelfTestState:
    """How far it is. `share` goes from 0 to 1."""

    phase: Phase = "idle"
    share: float = 0.0
    n_people: int = 0
    """While it measures: so many ask at once just now."""

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.phase in ("tuning", "measuring")


async def find_limit(measure: Callable[[int], Awaitable[Level]], n_slots: int, n_most: int) -> Level:
    """The level of the most people that is comfortable; where none is, that of one.

    Begins where every slot is at work, goes up from there or down, and halves what is left until it is near enough.

    Args:
        measure: measures so many people.
        n_most: as many are let in at all.
    """
    level = best = await measure(n_slots)
    low, high = (n_slots, None) if level.is_comfortable else (0, n_slots)
    while (n_people := _next(low, high, n_most)) is not None:
        level = await measure(n_people)
        if level.is_comfortable:
            best, low = level, n_people
        else:
            best, high = best if low else level, n_people
    return best


def _next(low: int, high: int | None, n_most: int) -> int | None:
    """How many to try between those that are comfortable and those that are not; None when that is known."""
    if high is None:  # nothing was too many yet
        return min(n_most, 2 * low) if low < n_most else None
    if high - low <= max(1, int(_NEAR * low)):
        return None
    return (low + high) // 2


def with_waiting(level: Level, n_slots: int, n_most: int) -> int:
    """How many can ask at once when some may wait: those whom a place comes free for in time."""
    if not level.is_comfortable:
        return 1
    answers_per_s = level.all_per_s / USUAL_ANSWER_TOKENS
    at_work = min(level.n_people, n_slots)
    return min(n_most, max(level.n_people, at_work + int(_PATIENCE_S * answers_per_s)))


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
        """Find the number of threads and the form of the model that are fastest here, and load it so.

        What cannot be done is left out.
        """
        source = self._bench.model_source
        if source is None:
            return
        from appliance.tuning.tuner import Tuner  # here: its libraries are of no use before

        settings, folder, until = self._bench.settings, self._paths.tuned, time.monotonic() + _TUNE_S
        own = settings.engine_config(source)
        n_before, over = thread_count(for_this_cpu(own, folder)), threading.Event()
        await self._in_time(lambda: tune_threads(own, folder, over), over.set, until)
        self.state = SelfTestState("tuning", _THREADS_SHARE)
        config = for_this_cpu(own, folder)
        tuner = Tuner(source, folder, config, settings.tuning_max_kl, self._tuned_so_far, n_rounds=_N_ROUNDS)
        tuned = await self._in_time(tuner.run, tuner.cancel, until)
        if thread_count(config) != n_before or (tuned is not None and tuned.file is not None):
            await self._bench.use_model(source)

    async def _in_time(self, work: Callable[[], _T], cancel: Callable[[], None], until: float) -> _T | None:
        """`work` done in a thread; None where it failed, was stopped or took too long."""
        running = asyncio.create_task(asyncio.to_thread(work))
        while not running.done():
            await asyncio.wait({running}, timeout=_LOOK_S)
            if self._stopped.is_set() or time.monotonic() > until:
                cancel()
        try:
            return await running
        except (ApplianceError, OSError) as error:
            _log.warning("the self-test goes on without this part of tuning: %s", error)
            return None

    def _tuned_so_far(self, progress: Progress) -> None:
        """On the tuner's thread."""
        self.state = SelfTestState(
            "tuning", _THREADS_SHARE + (_TUNE_SHARE - _THREADS_SHARE) * progress.number / max(1, progress.n_steps)
        )

    async def _measure(self) -> Verdict:
        began, n_levels = self.state.share, 0
        settings, info = self._bench.settings, self._bench.engine.info
        if info is None:
            raise NotReady("the engine is not ready")
        load_test = LoadTest(self._bench.engine, settings.system_prompt)

        async def level(n_people: int) -> Level:
            nonlocal n_levels
            self.state = SelfTestState("measuring", began + (1 - began) * n_levels / (n_levels + 2), n_people)
            n_levels += 1
            return await load_test.measure(n_people)

        n_most = settings.n_places
        best = await find_limit(level, info.n_slots, n_most)
        return Verdict(
            model_name=info.model_name,
            fingerprint=info.fingerprint,
            people=best.n_people if best.is_comfortable else 0,
            each_per_s=best.each_per_s,
            with_waiting=with_waiting(best, info.n_slots, n_most),
            ttft_p90_s=best.ttft_p90_s,
            free_memory_bytes=available_ram_bytes(),
            free_disk_bytes=shutil.disk_usage(self._paths.data_dir).free,
            at=time.time(),
            n_threads=thread_count(for_this_cpu(settings.engine_config(None), self._paths.tuned)),
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
