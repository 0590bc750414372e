"""What is noted of every question: counts for the owner, the speed of this PC, and how far things have to give way.

Nothing of what was asked or answered comes here.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import NamedTuple, Protocol

from appliance.answers.answer import Answer, Origin
from appliance.answers.engine_link import Engine
from appliance.engine.request import Finished, FinishReason, Running
from appliance.line.forecast import Forecast
from appliance.line.load_shedding import LoadShedding
from appliance.metrics.health import ProcessUse, use_of
from appliance.metrics.registry import Metrics, Situation
from appliance.settings.schema import Settings

_log = logging.getLogger(__name__)

_ENGINE_FAILURES = ("engine_failed", "no_room", "internal_error")
"""Codes that say something of the engine; the others say something of the question."""


class Counts(NamedTuple):
    """What the chat service has in hand."""

    n_waiting: int
    """Questions for the model that have no slot yet."""
    n_places_taken: int
    """Questions in hand, waiting ones included."""
    n_conversations: int
    """Conversations that are kept."""


class Occupancy(Protocol):
    """What is looked up in the chat service."""

    @property
    def not_ready_code(self) -> str:
        """Why no question can be answered right now; "" when one can."""

    def counts(self) -> Counts:
        """How many there are of what."""


class Watch:
    """Owned by the event loop's thread. The clock is in seconds."""

    def __init__(self, occupancy: Occupancy, engine: Engine, settings: Settings, clock: Callable[[], float]) -> None:
        self._occupancy = occupancy
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._began_at = clock()
        self.run = secrets.token_hex(4)
        """Names this run of the program: a page that was loaded from an earlier one loads itself again."""
        self._n_held, self._n_decoded, self._looked_at = 0, 0, self._began_at
        self._forecast = Forecast(settings.max_batch_size, settings.max_answer_tokens)
        self.load_shedding = LoadShedding(
            settings.shedding_waits_s,
            self._forecast,
            clock,
            self._running,
            self._waiting,
            settings.short_answer_tokens,
        )
        self.metrics = Metrics(clock, self._look)
        engine.on_finished = self._request_over

    def use(self, settings: Settings) -> None:
        """Other thresholds."""
        self._settings = settings
        self.load_shedding.use(settings.shedding_waits_s, settings.short_answer_tokens)

    def answered(self, answer: Answer, asked_at: float) -> None:
        """An answer is over for its reader: into the counts, and a line of the log."""
        assert answer.finish is not None
        ttft_s = None if answer.first_text_at is None else answer.first_text_at - asked_at
        by_model = answer.origin in (Origin.MODEL, Origin.BLOCKED)
        self.metrics.answered(answer.origin, answer.finish, answer.error, ttft_s, by_model=by_model)
        first_token_s = answer.finished.timings.first_token_s if answer.finished is not None else 0.0
        if ttft_s is not None and first_token_s and answer.origin is Origin.MODEL:
            self.metrics.waited(max(0.0, ttft_s - first_token_s))
        finished = answer.finished
        _log.info(
            "request %s: n_prompt=%s n_cached=%s n_decoded=%s ttft_server_s=%s duration_s=%.3f by=%s reason=%s",
            answer.request_id,
            finished.n_prompt if finished else 0,
            finished.n_cached if finished else 0,
            finished.n_decoded if finished else 0,
            f"{ttft_s:.3f}" if ttft_s is not None else "-",
            self._clock() - asked_at,
            answer.origin,
            answer.error or answer.finish,
        )

    def explain(self, answer: Answer) -> None:
        """Tell the reader of an answer that is over why it is shorter than usual, if it is."""
        if self.load_shedding.level and answer.finish is FinishReason.LENGTH:
            answer.note("short_answer")

    def tick(self) -> None:
        """Twice a second while the program runs."""
        now = self._clock()
        n_decoded = self._engine.n_decoded_total
        # While a line waits, every slot is held: what goes by between two answers is time that those in line wait.
        n_held = self._settings.max_batch_size if self._waiting() else self._engine.n_running
        if n_held == self._n_held:
            self._forecast.note_speed(n_held, n_decoded - self._n_decoded, now - self._looked_at)
        self._n_held, self._n_decoded, self._looked_at = n_held, n_decoded, now
        self.metrics.tick(n_decoded)
        self.load_shedding.tick()

    def _request_over(self, finished: Finished) -> None:
        if finished.n_decoded:
            self.metrics.generated(finished)
            self._forecast.note_answer(finished.n_decoded, finished.timings.first_token_s)
        is_failure = finished.reason is FinishReason.ERROR and finished.error in _ENGINE_FAILURES
        if is_failure or finished.n_decoded:
            self.load_shedding.request_ended(failed=is_failure)

    def _running(self) -> list[Running]:
        return list(self._engine.running)

    def _waiting(self) -> int:
        return self._occupancy.counts().n_waiting

    def _look(self) -> Situation:
        info, counts = self._engine.info, self._occupancy.counts()
        return Situation(
            is_ready=not self._occupancy.not_ready_code,
            n_slots=self._settings.max_batch_size,
            n_slots_used=self._engine.n_running,
            n_waiting=counts.n_waiting,
            n_places=self._settings.n_places,
            n_places_taken=counts.n_places_taken,
            n_conversations=counts.n_conversations,
            n_decoded_total=self._engine.n_decoded_total,
            n_engine_restarts=self._engine.n_restarts,
            wait_s=self.load_shedding.wait_s(),
            level=self.load_shedding.level,
            n_level_moves=self.load_shedding.n_moves,
            uptime_s=self._clock() - self._began_at,
            web=use_of(),
            engine=use_of(info.pid) if info is not None else ProcessUse(),
        )
