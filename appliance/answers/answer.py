"""One answer while it is written: it belongs to the service, grows without readers, and paces those it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from enum import StrEnum
from typing import Protocol

from appliance.answers.pace import Pacer
from appliance.engine.request import Delta, Finished, FinishReason, Started, Update

_LOOK_AT_LINE_S = 0.5
"""How often a waiting reader's place is looked up."""


class AnswerState(StrEnum):
    """Waiting for its first token, being written, or over."""

    WAITING = "waiting"
    WRITING = "writing"
    DONE = "done"


class Origin(StrEnum):
    """Who gives an answer."""

    MODEL = "model"
    JOINED = "joined"
    """The model, for somebody who asked the same a moment earlier."""
    SAVED = "saved"
    """The answer cache."""
    QUICK = "quick"
    """A rule of the owner's."""
    BLOCKED = "blocked"
    """The owner's block list, in place of an answer or of its rest."""


class Source(Protocol):
    """What is waited for: a turn at the gate, then the engine's stream."""

    @property
    def ahead(self) -> int | None:
        """Requests served before it; None once it is being computed."""

    def abort(self) -> None:
        """End it soon."""


class Reply(Source, Protocol):
    """Where an answer comes from, word by word."""

    @property
    def origin(self) -> Origin:
        """Who gives it; settled once it has ended."""

    @property
    def saved_at(self) -> float | None:
        """For a saved one: when it was written, Unix time in s."""

    def __aiter__(self) -> AsyncIterator[Update]:
        """Started, Delta ..., Finished last."""


class Answer:
    """The text so far and how it ended. `follow` is for readers; everything else is called by ChatService.

    Owned by the event loop's thread.
    """

    def __init__(
        self,
        request_id: str,
        question: str,
        clock: Callable[[], float],
        n_streams: Callable[[], int],
        *,
        text: str = "",
        token_ids: tuple[int, ...] = (),
        notices: tuple[str, ...] = (),
    ) -> None:
        """`text` and `token_ids` are the beginning of an answer that is continued."""
        self.request_id = request_id
        self.person = ""
        """Whose page it was asked on; empty for a program's."""
        self.question = question
        self.text = text
        self.n_text_before = len(text)
        """Characters that were there before this answer was begun."""
        self.state = AnswerState.WAITING
        self.origin = Origin.MODEL
        self.saved_at: float | None = None
        """For a saved answer: when it was written, Unix time in s."""
        self.finish: FinishReason | None = None
        self.error = ""
        """For ERROR: the code of an appliance error."""
        self.notices = notices
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.begun_at = clock()
        self.first_text_at: float | None = None
        self.alone_since: float | None = self.begun_at
        """Since when nobody reads it; None while somebody does."""
        self._token_ids = list(token_ids)
        self._has_all_ids = bool(token_ids) or not text
        self._clock = clock
        self._n_streams = n_streams
        self._source: Source | None = None
        self._ended_by = ""
        self._readers: set[_Reader] = set()
        self._begun = asyncio.Event()
        self._done = asyncio.Event()

    @property
    def ahead(self) -> int | None:
        """How many are served before this one; None once it is being computed."""
        if self.state is not AnswerState.WAITING or self._source is None:
            return None
        return self._source.ahead

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens of the whole text; none where those of its beginning are not known."""
        return tuple(self._token_ids) if self._has_all_ids else ()

    def drop_token_ids(self) -> None:
        """Those there are were another model's."""
        self._has_all_ids = self._has_all_ids and not self.text and self.origin is Origin.MODEL
        self._token_ids.clear()

    @property
    def is_stopped(self) -> bool:
        """Whether somebody ended it before its end."""
        return bool(self._ended_by)

    async def follow(self, heartbeat_s: float | None = None) -> AsyncGenerator[Answer, None]:
        """The answer, once for every repaint of one reader; the last item is DONE.

        Closing the iterator says that this reader has gone: wrap it in `contextlib.aclosing`.

        Args:
            heartbeat_s: yield at least this often, changed or not, so that a caller who learns of a leaver
                only between two items learns of it in time.
        """
        reader = _Reader()
        self._readers.add(reader)
        self.alone_since = None
        try:
            while True:
                is_done = self.state is AnswerState.DONE
                reader.painted(self._clock(), self.ahead, has_text=bool(self.text))
                yield self
                if is_done:
                    return
                await self._until_due(reader, heartbeat_s)
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self.alone_since = self._clock()

    async def wait_done(self) -> None:
        """Wait for the end without reading along."""
        await self._done.wait()

    async def wait_begun(self) -> None:
        """Wait until the engine has taken the question, or it is over."""
        await self._begun.wait()

    def wait_for(self, source: Source) -> None:
        """This is what it waits for."""
        self._source = source

    def comes_from(self, origin: Origin, saved_at: float | None) -> None:
        """Note who gives it."""
        self.origin, self.saved_at = origin, saved_at

    def end(self, notice: str = "") -> None:
        """Ask for its end; DONE follows within a step of the engine. `notice` tells the reader who ended it."""
        if self.state is AnswerState.DONE:
            return
        self._ended_by = notice or "stopped"
        if self._source is not None:
            self._source.abort()

    def take(self, update: Update) -> None:
        """One update of the engine. Costs next to nothing for a token: readers wake when a repaint is due."""
        match update:
            case Delta():
                self._take_text(update)
            case Started():
                self.started = update
                self._begun.set()
                self._wake_readers()
                if update.input_cut:
                    self.note("input_cut")
                if update.n_dropped_messages:
                    self.note("short_history" if update.history_shortened else "history_cut")
            case Finished():
                self.finished = update
                self.close(update.reason, update.error)

    def note(self, notice: str) -> None:
        """Add a notice for the reader, once."""
        if notice not in self.notices:
            self.notices = (*self.notices, notice)

    def close(self, reason: FinishReason, error: str = "") -> None:
        """The end. Only the first one counts."""
        if self.finish is not None:
            return
        self.finish, self.error = reason, error
        if reason is FinishReason.LENGTH:
            self.note("limit")
        elif reason is FinishReason.ABORT:
            self.note(self._ended_by or "stopped")

    def settle(self) -> None:
        """It is committed: tell the readers."""
        self.state = AnswerState.DONE
        self._begun.set()
        self._done.set()
        self._wake_readers()

    def _wake_readers(self) -> None:
        for reader in self._readers:
            reader.wake.set()

    def _take_text(self, delta: Delta) -> None:
        if delta.text and self.first_text_at is None:
            self.first_text_at = self._clock()
        self.state = AnswerState.WRITING
        self.text += delta.text
        self._token_ids.extend(delta.token_ids)
        for reader in self._readers:
            was_asleep = not reader.pacer.has_pending  # then it does not know yet when the next repaint is due
            reader.pacer.add(delta.text, len(delta.token_ids))
            if was_asleep or reader.pacer.is_eager(self._n_streams()):
                reader.wake.set()

    async def _until_due(self, reader: _Reader, heartbeat_s: float | None) -> None:
        """Sleep until this reader's page is to be painted again."""
        painted_at = self._clock()
        while self.state is not AnswerState.DONE:
            now = self._clock()
            due_s = reader.pacer.due_in_s(now, self._n_streams())
            if due_s == 0 or self.ahead != reader.shown_ahead:
                return
            limits = [due_s, _LOOK_AT_LINE_S if self.state is AnswerState.WAITING else None]
            if heartbeat_s is not None:
                beat_s = painted_at + heartbeat_s - now
                if beat_s <= 0:
                    return
                limits.append(beat_s)
            reader.wake.clear()
            await _wait(reader.wake, min((limit for limit in limits if limit is not None), default=None))


class _Reader:
    """One page that follows the answer."""

    def __init__(self) -> None:
        self.pacer = Pacer()
        self.wake = asyncio.Event()
        self.shown_ahead: int | None = None

    def painted(self, now: float, ahead: int | None, *, has_text: bool) -> None:
        """Everything there is has been shown; before the first word the next one is due at once."""
        self.shown_ahead = ahead
        if has_text:
            self.pacer.painted(now)


async def _wait(event: asyncio.Event, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
