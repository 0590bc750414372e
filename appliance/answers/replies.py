"""Who answers: the block list, a quick answer, a saved one, one that is being written for somebody else, the engine.

It decides where an answer comes from and never whose turn it is: admission and conversations are the chat service's.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from appliance.answers.answer import Origin, Reply
from appliance.answers.answer_cache import AnswerCache, SavedAnswer
from appliance.answers.block_list import BlockList
from appliance.answers.cache_key import CacheKeys
from appliance.answers.engine_link import Engine
from appliance.answers.in_flight import Generation, InFlight
from appliance.answers.quick_answers import QuickAnswers
from appliance.base.janitor import Job
from appliance.base.log import where
from appliance.engine.request import Delta, Finished, FinishReason, Request, Started, Update
from appliance.line.admission import Gate, Place
from appliance.settings.schema import Settings

_log = logging.getLogger(__name__)

_REFRESH_S = 2.0
_EXPIRE_S = 15.0


@dataclass(frozen=True)
class Known:
    """Those who answer without the engine; None leaves one out. Also what the owner's page will show and change."""

    block_list: BlockList | None = None
    quick_answers: QuickAnswers | None = None
    saved: AnswerCache | None = None

    def refresh(self) -> None:
        """Read the owner's files again where they have changed. Touches the disk."""
        if self.block_list is not None:
            self.block_list.file.refresh()
        if self.quick_answers is not None:
            self.quick_answers.file.refresh()


class Replies:
    """The chain of those who can answer. Belongs to the event loop's thread."""

    def __init__(self, engine: Engine, settings: Settings, known: Known) -> None:
        self.known = known
        self._engine = engine
        self._gate = Gate(settings.n_engine_places)
        self._in_flight = InFlight()
        self.use(settings)
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, settings: Settings) -> None:
        """Go by these from the next question on."""
        self._cache_keys = CacheKeys(settings.answer_cache_scope, settings.system_prompt, _settings_digest(settings))
        self._gives_quick_answers = settings.quick_answers
        self._sampling = settings.sampling
        self._gate.resize(settings.n_engine_places)
        if self.known.quick_answers is not None:
            self.known.quick_answers.office_name = settings.office_name
        if self.known.saved is not None:
            self.known.saved.ttl_s = settings.answer_cache_ttl_s

    @property
    def n_waiting(self) -> int:
        """Questions in the gate's line and in the engine's."""
        return self._gate.n_waiting + self._engine.n_waiting

    @property
    def model(self) -> str:
        """Fingerprint of the model that answers now; "" before there is one."""
        return self._engine.info.fingerprint if self._engine.info is not None else ""

    async def find(self, request: Request, *, fresh: bool = False, whole: bool = False) -> Reply | None:
        """Whoever answers at once and without the engine.

        Args:
            fresh: the engine is to answer what is not blocked, whatever is known already.
            whole: look for blocked words in the earlier questions too: a program's, which no list has seen yet.
        """
        questions = [message.text for message in request.messages if message.role == "user"]
        asked = questions if whole else [*questions[-1:], *filter(None, [request.own_words])]
        if (sentence := self._blocked(asked)) is not None:
            return Told(sentence, Origin.BLOCKED)
        if fresh or request.messages[-1].role != "user":
            return None
        is_ours = not whole or self._cache_keys.is_ours(request)
        if self.known.quick_answers is not None and self._gives_quick_answers and is_ours:
            quick = self.known.quick_answers.find(questions[-1])
            if quick is not None:
                return Told(quick, Origin.QUICK)
        digest = self._digest(request)
        if self.known.saved is not None and digest:
            saved = await self.known.saved.find(digest, request.person, questions[-1])
            if saved is not None and not self._is_blocked_now(saved, questions[-1]):
                return Told(saved.text, Origin.SAVED, saved)
        return None

    def can_join(self, request: Request) -> bool:
        """Whether the same is being answered now."""
        return self._in_flight.find(self._digest(request)) is not None

    def join(self, request: Request, *, fresh: bool) -> Reply | None:
        """Read along where the same is being answered now. A `fresh` one is nobody else's."""
        generation = None if fresh else self._in_flight.find(self._digest(request))
        return generation.join(request.person) if generation is not None else None

    def generate(self, request: Request, asked: Request, place: Place, *, fresh: bool) -> Reply:
        """Ask the engine. `place` is given back when the engine is done.

        `asked` is what the engine gets for `request`, which others may ask too: under pressure it is less.
        """
        asked = replace(asked, sampling=asked.sampling.over(self._sampling))
        question, begun = _question(request), ""
        if request.messages[-1].role == "assistant":
            begun = request.messages[-1].text
        blocks = self.known.block_list
        screen = blocks.screen(question, begun) if blocks is not None else None
        generation = Generation(asked, place, self._gate, self._engine, screen)
        reading = generation.join(request.person)
        digest = self._digest(request)
        unlist = self._in_flight.add(digest, generation) if digest and not fresh else _nothing
        task = asyncio.get_running_loop().create_task(self._carry(generation, digest, unlist))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return reading

    def jobs(self) -> list[Job]:
        """What keeps rules and saved answers up to date."""
        known = self.known
        jobs = []
        if known.block_list is not None or known.quick_answers is not None:
            jobs.append(Job("owner's rules", _REFRESH_S, lambda: asyncio.to_thread(known.refresh)))
        if known.saved is not None:
            jobs.append(Job("saved answers", _EXPIRE_S, known.saved.sweep))
        return jobs

    def forget(self, person: str) -> None:
        """Drop the saved answers to what nobody else has asked."""
        if self.known.saved is not None:
            self.known.saved.forget(person)

    async def close(self) -> None:
        """Write what is to be kept."""
        if self.known.saved is not None:
            await self.known.saved.close()

    async def _carry(self, generation: Generation, digest: str, unlist: Callable[[], None]) -> None:
        """Until the engine is done; an answer that ended by itself, and was given all it asked for, is saved."""
        model = self.model
        try:
            end = await generation.run()
            # Another model may have taken over before it was begun: then it is not what this digest names.
            is_whole = end.reason is FinishReason.STOP and _is_whole(generation) and model == self.model
            if self.known.saved is not None and digest and is_whole:
                deltas = [update for update in generation.updates if isinstance(update, Delta)]
                ids = tuple(token_id for delta in deltas for token_id in delta.token_ids)
                text = "".join(delta.text for delta in deltas)
                saved = SavedAnswer(text, ids, saved_at=time.time(), n_prompt=end.n_prompt)
                self.known.saved.put(digest, saved, generation.persons, _question(generation.request))
        finally:
            unlist()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer failed: %s", where(error))

    def _blocked(self, questions: list[str]) -> str | None:
        if self.known.block_list is None:
            return None
        sentences = (self.known.block_list.question(question) for question in questions)
        return next((sentence for sentence in sentences if sentence is not None), None)

    def _is_blocked_now(self, saved: SavedAnswer, question: str) -> bool:
        """The list may have grown since it was saved."""
        return self.known.block_list is not None and self.known.block_list.answer(saved.text, question) is not None

    def _digest(self, request: Request) -> str:
        return self._cache_keys.digest(request, self.model)


class Told:
    """An answer that is there already: a Reply."""

    ahead: int | None = None

    def __init__(self, text: str, origin: Origin, saved: SavedAnswer | None = None) -> None:
        self.origin = origin
        self.saved_at = saved.saved_at if saved is not None else None
        ids = saved.token_ids if saved is not None else ()
        n_prompt = saved.n_prompt if saved is not None else 0
        self._updates: tuple[Update, ...] = (
            Started(n_prompt, 0, input_cut=False),
            Delta(text, ids),
            Finished(FinishReason.STOP, n_prompt, n_prompt, len(ids)),
        )

    def abort(self) -> None:
        """See `Source`: there is nothing to end."""

    async def __aiter__(self) -> AsyncIterator[Update]:
        for update in self._updates:
            yield update


def _question(request: Request) -> str:
    return next(message.text for message in reversed(request.messages) if message.role == "user")


def _is_whole(generation: Generation) -> bool:
    """Whether nothing of question, history or answer was left out."""
    started = [update for update in generation.updates if isinstance(update, Started)]
    was_cut = any(update.input_cut or update.n_dropped_messages for update in started)
    return not was_cut and not generation.is_blocked


def _settings_digest(settings: Settings) -> str:
    """What an answer depends on beside the request and the model file."""
    names = ("max_answer_tokens", "max_input_tokens", "temperature", "top_p", "top_k", "repetition_penalty")
    return hashlib.sha256(repr([(name, getattr(settings, name)) for name in names]).encode()).hexdigest()


def _nothing() -> None:
    return None
