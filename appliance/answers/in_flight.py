"""One generation and everybody who reads along: who asks the same while it runs is answered by it.

Each reader can leave without the others noticing; the generation ends with its last one. Belongs to the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from appliance.answers.answer import Origin, Source
from appliance.answers.block_list import Screen
from appliance.answers.engine_link import Engine
from appliance.base.errors import ApplianceError
from appliance.engine.request import Delta, Finished, FinishReason, Request, Update
from appliance.line.admission import Gate, Place


class Generation:
    """One request on its way through the gate and the engine. `run` carries it; `join` makes readers."""

    def __init__(self, request: Request, place: Place, gate: Gate, engine: Engine, screen: Screen | None) -> None:
        """`place` takes room and is nobody's: it is given back when the engine is done, whoever has left before.

        `screen` looks at every word before a reader does; None lets everything through.
        """
        self.request = request
        self.persons = {request.person: None}
        """Everybody who has read it, in order."""
        self.updates: list[Update] = []
        """Everything so far, Finished last: whoever joins late reads it from the beginning."""
        self.is_over = False
        self.is_given_up = False
        """Its last reader has left: nobody may join any more."""
        self._place = place
        self._screen = screen
        self._engine = engine
        self._turn = gate.join(self._n_waiting)
        self._source: Source = self._turn
        self._readings: set[Reading] = set()
        self._has_founder = True
        self._is_ended = False

    @property
    def ahead(self) -> int | None:
        """Requests served before it; None once it is being computed."""
        return self._source.ahead

    @property
    def is_blocked(self) -> bool:
        """Whether the owner's block list has ended it."""
        return self._screen is not None and self._screen.sentence is not None

    def join(self, person: str) -> Reading:
        """One more reader, who reads it from the beginning."""
        reading = Reading(self, Origin.JOINED if self._readings else Origin.MODEL)
        self.persons[person] = None
        self._readings.add(reading)
        return reading

    def leave(self, reading: Reading) -> bool:
        """A reader wants no more. True when others go on; else the end comes as an update, with all there is."""
        if self._readings == {reading}:
            self.is_given_up = True
            self._source.abort()
            return False
        self._readings.discard(reading)
        self._has_founder = self._has_founder and not reading.is_founder
        return True

    async def run(self) -> Finished:
        """Wait at the gate, ask the engine, hand its updates on. Raises nothing an engine can cause."""
        end = Finished(FinishReason.ERROR, 0, 0, 0, "internal_error")
        try:
            if not await self._turn.reached():
                end = Finished(FinishReason.ABORT, 0, 0, 0)
                return end
            stream = self._engine.submit(self.request)
            self._source = stream
            async for update in stream:
                match update:
                    case Finished():
                        end = update
                    case Delta() if self._screen is not None:
                        self._show(self._screen.feed(update))
                    case _:
                        self._push(update)
            if self._screen is not None:
                self._show(self._screen.finish())
                end = replace(end, reason=FinishReason.STOP) if self.is_blocked else end
        except ApplianceError as error:
            end = Finished(FinishReason.ERROR, 0, 0, 0, getattr(error, "code", "engine_failed"))
        finally:
            self._turn.leave()
            self._place.release()
            if not self._has_founder:
                # The engine keeps KV state under the conversation of whoever asked first, who may have been forgotten.
                self._engine.forget(self.request.person, self.request.conversation)
            self.is_over = True
            self._push(end)
        return end

    def _show(self, pieces: Sequence[Delta]) -> None:
        """Hand on what the screen let through, or end the answer with the owner's sentence."""
        for piece in pieces:
            self._push(piece)
        assert self._screen is not None
        if self._screen.sentence is not None and not self._is_ended:
            self._is_ended = True
            self._source.abort()
            has_text = any(isinstance(update, Delta) and update.text for update in self.updates)
            self._push(Delta(f"\n\n{self._screen.sentence}" if has_text else self._screen.sentence, ()))

    def _push(self, update: Update) -> None:
        self.updates.append(update)
        for reading in self._readings:
            reading.wake()

    def _n_waiting(self) -> int:
        return self._engine.n_waiting


class Reading:
    """One reader's view of a generation: a Reply."""

    saved_at: float | None = None

    def __init__(self, generation: Generation, origin: Origin) -> None:
        self._origin = origin
        self._generation = generation
        self._has_left = False
        self._news = asyncio.Event()

    @property
    def origin(self) -> Origin:
        """See `Reply`."""
        return Origin.BLOCKED if self._generation.is_blocked else self._origin

    @property
    def is_founder(self) -> bool:
        """Whether it was begun for this reader."""
        return self._origin is Origin.MODEL

    @property
    def ahead(self) -> int | None:
        """See `Source`."""
        return self._generation.ahead

    def abort(self) -> None:
        """See `Source`. With others reading it ends here and now; the last one hears the engine's own end."""
        if not self._generation.is_over and not self._has_left:
            self._has_left = self._generation.leave(self)
            self.wake()

    def wake(self) -> None:
        """There is more to read."""
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Update]:
        n_read = 0
        while True:
            self._news.clear()
            while n_read < len(self._generation.updates) and not self._has_left:
                update = self._generation.updates[n_read]
                n_read += 1
                yield update
                if isinstance(update, Finished):
                    return
            if self._has_left:
                yield Finished(FinishReason.ABORT, 0, 0, n_read)
                return
            await self._news.wait()


class InFlight:
    """The generations that may be joined, by the digest of what was asked."""

    def __init__(self) -> None:
        self._by_digest: dict[str, Generation] = {}

    def find(self, digest: str) -> Generation | None:
        """One that answers exactly this and has not been given up."""
        generation = self._by_digest.get(digest)
        return None if generation is None or generation.is_over or generation.is_given_up else generation

    def add(self, digest: str, generation: Generation) -> Callable[[], None]:
        """Let others join it; the function that is returned ends that."""
        self._by_digest[digest] = generation

        def remove() -> None:
            if self._by_digest.get(digest) is generation:
                del self._by_digest[digest]

        return remove
