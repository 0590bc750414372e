"""A scripted engine: the test decides what each answer says and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from appliance.base.errors import NotReady
from appliance.engine.client import EngineState
from appliance.engine.request import Delta, EngineInfo, Finished, FinishReason, Request, Running, Started, Update

INFO = EngineInfo(model_name="Double", n_slots=2, n_ctx_seq=1024, n_vocab=100, pid=1, load_s=0.0, fingerprint="double")


class ScriptedStream:
    """One answer. The test calls `start`, `say` and `finish`; `abort` finishes it as the engine would."""

    def __init__(self, engine: ScriptedEngine, request: Request) -> None:
        self.request = request
        self.ahead: int | None = 0
        self.n_aborts = 0
        self._engine = engine
        self._updates: asyncio.Queue[Update] = asyncio.Queue()
        self._n_decoded = 0

    async def __aiter__(self) -> AsyncIterator[Update]:
        while True:
            update = await self._updates.get()
            yield update
            if isinstance(update, Finished):
                return

    def abort(self) -> None:
        self.n_aborts += 1
        if self.n_aborts == 1 and self._engine.obeys_abort:
            self.finish(FinishReason.ABORT)

    def start(self, *, n_dropped_messages: int = 0, input_cut: bool = False, history_shortened: bool = False) -> None:
        self.ahead = None
        self._updates.put_nowait(Started(10, n_dropped_messages, input_cut, history_shortened))

    def say(self, text: str) -> None:
        """One token per character."""
        if self.ahead is not None:
            self.start()
        for character in text:
            self._n_decoded += 1
            self._updates.put_nowait(Delta(character, (ord(character),)))

    def finish(self, reason: FinishReason = FinishReason.STOP, error: str = "") -> None:
        self._updates.put_nowait(Finished(reason, 10, 3, self._n_decoded, error))


class ScriptedEngine:
    """Hands out streams and remembers the requests."""

    def __init__(self) -> None:
        self.state = EngineState.READY
        self.info: EngineInfo | None = INFO
        self.n_running = self.n_waiting = self.n_decoded_total = self.n_restarts = 0
        self.running: list[Running] = []
        self.on_finished: Callable[[Finished], None] | None = None
        self.obeys_abort = True
        self.streams: list[ScriptedStream] = []
        self.forgotten: list[tuple[str, str]] = []

    def submit(self, request: Request) -> ScriptedStream:
        if self.state is EngineState.FAILED:
            raise NotReady("failed")
        stream = ScriptedStream(self, request)
        self.streams.append(stream)
        return stream

    def forget(self, person: str, conversation: str = "") -> None:
        self.forgotten.append((person, conversation))

    @property
    def last(self) -> ScriptedStream:
        return self.streams[-1]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    """Let everything that can run now run."""
    for _ in range(30):
        await asyncio.sleep(0)
