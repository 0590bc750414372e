"""Who answers, in this order: one who is being answered the same just now, the engine.

It decides where an answer comes from and never whose turn it is: admission and conversations are the chat service's.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

from appliance.admission import Gate, Place
from appliance.answer import Origin, Reply
from appliance.engine.request import Request
from appliance.engine_link import Engine
from appliance.in_flight import Generation, InFlight
from appliance.log import where
from appliance.sameness import Sameness
from appliance.settings import Settings

_log = logging.getLogger(__name__)


class Replies:
    """The chain of those who can answer. Belongs to the event loop's thread."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._gate = Gate(settings.n_engine_places)
        self._in_flight = InFlight()
        self._sameness = Sameness(settings.answer_cache_scope, settings.system_prompt, _settings_digest(settings))
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def n_waiting(self) -> int:
        """Questions in the gate's line and in the engine's."""
        return self._gate.n_waiting + self._engine.n_waiting

    def can_join(self, request: Request) -> bool:
        """Whether the same is being answered now."""
        return self._in_flight.find(self._digest(request)) is not None

    def join(self, request: Request, *, fresh: bool) -> Reply | None:
        """Read along where the same is being answered now. A `fresh` one is nobody else's."""
        generation = None if fresh else self._in_flight.find(self._digest(request))
        return generation.join(Origin.JOINED) if generation is not None else None

    def generate(self, request: Request, asked: Request, place: Place, *, fresh: bool) -> Reply:
        """Ask the engine. `place` is given back when the engine is done.

        `asked` is what the engine gets for `request`, which others may ask too: under pressure it is less.
        """
        generation = Generation(asked, place, self._gate, self._engine)
        reading = generation.join(Origin.MODEL)
        digest = self._digest(request)
        unlist = self._in_flight.add(digest, generation) if digest and not fresh else _nothing
        task = asyncio.get_running_loop().create_task(self._carry(generation, unlist))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return reading

    async def _carry(self, generation: Generation, unlist: Callable[[], None]) -> None:
        try:
            await generation.run()
        finally:
            unlist()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer failed: %s", where(error))

    def _digest(self, request: Request) -> str:
        info = self._engine.info
        return self._sameness.digest(request, info.fingerprint if info is not None else "")


def _settings_digest(settings: Settings) -> str:
    """What an answer depends on beside the request and the model file."""
    names = ("max_answer_tokens", "max_input_tokens", "temperature", "top_p", "top_k", "repetition_penalty")
    return hashlib.sha256(repr([(name, getattr(settings, name)) for name in names]).encode()).hexdigest()


def _nothing() -> None:
    return None
