"""The web side of the engine: start, watch and restart its process, one step further down where kernels fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from appliance.base.errors import ApplianceError, EngineFailed, ModelFileError, NoKernels, NotReady, WrongNumbers
from appliance.engine.child import Child
from appliance.engine.config import EngineConfig
from appliance.engine.kernels import WRONG, Failure
from appliance.engine.request import EngineInfo, Finished, FinishReason, Request, Running
from appliance.engine.step_down import StepDown
from appliance.engine.stream import TokenStream
from appliance.engine.wire import Abort, Forget, FromEngine, Kernels, LoadFailed, Ready, Report, Submit

log = logging.getLogger(__name__)

_N_SUDDEN = 2
"""Deaths in a row, without a token in between, up to which another engine starts at once and people wait for it."""
_MAX_PAUSE_S = 60.0
_MAX_SENDS = 2
"""How often one request is given to an engine: one that ends the engine each time must not do so for ever."""
_LOAD_S = 600.0
"""Longer than a large file from a slow disk takes: then something else is wrong."""


class EngineState(StrEnum):
    """LOADING until first ready; RESTARTING after a death; SWITCHING from one model to another; FAILED and CLOSED are
    final."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    SWITCHING = "switching"
    FAILED = "failed"
    CLOSED = "closed"


class EngineClient:
    """One engine for one event loop; all methods but `spawn` belong to that loop's thread."""

    def __init__(self, config: EngineConfig, kernels: StepDown | None = None) -> None:
        """`kernels`: what failed here before; None knows of nothing, and forgets."""
        self._config = config
        self.kernels = kernels or StepDown()
        self._child: Child | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._streams: dict[str, TokenStream] = {}
        self._to_forget: dict[Forget, None] = {}
        self._n_failures = 0
        self.state = EngineState.LOADING
        self.info: EngineInfo | None = None
        self.failure: ApplianceError | None = None
        self.n_running = 0
        self.n_waiting = 0
        self.n_decoded_total = 0
        """Tokens generated since the program started."""
        self.n_restarts = 0
        self.on_finished: Callable[[Finished], None] | None = None
        """Told of every request that is over, however it ended."""
        self.on_new_model: Callable[[], None] | None = None
        """Told when another model has taken over, before it is asked anything."""
        self._n_decoded_before = 0
        self._n_asked = 0
        self._switched: asyncio.Future[EngineInfo] | None = None
        """Waits for the engine that is to answer from now on; None while none is changed."""

    @property
    def running(self) -> list[Running]:
        """The answers that hold a slot, or are asked for and not yet said to wait."""
        streams = (stream for stream in self._streams.values() if stream.ahead is None or not stream.is_known)
        return [Running(stream.number, stream.n_decoded) for stream in streams]

    def spawn(self) -> None:
        """Start the process; before any event loop runs, so that it loads beside slow imports."""
        self.kernels.began()
        self._child = Child(replace(self._config, n_kernels_passed_over=self.kernels.n_passed_over))

    async def start(self) -> None:
        """Attach to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        if self._child is None:
            self.spawn()
        assert self._child is not None
        self._child.listen(self._deliver)

    async def wait_ready(self) -> EngineInfo:
        """Raises ModelFileError or EngineFailed where no engine comes up."""
        assert self._changed is not None, "start() comes first"
        while self.state in (EngineState.LOADING, EngineState.RESTARTING, EngineState.SWITCHING):
            self._changed.clear()
            await self._changed.wait()
        if self.state is not EngineState.READY or self.info is None:
            raise self.failure or EngineFailed("the engine is closed")
        return self.info

    async def wait_until_ready(self) -> EngineInfo:
        """However long it takes, and whatever fails in between."""
        assert self._changed is not None, "start() comes first"
        while self.state is not EngineState.READY or self.info is None:
            self._changed.clear()
            await self._changed.wait()
        return self.info

    def submit(self, request: Request) -> TokenStream:
        """Ask; while the engine restarts the request waits for it. Raises NotReady when none will come."""
        is_resting = self.state is not EngineState.READY and self._n_failures > _N_SUDDEN
        if self.state in (EngineState.FAILED, EngineState.CLOSED) or is_resting:
            raise NotReady(f"the engine is {self.state}")
        self._n_asked += 1
        stream = TokenStream(request, self._abort, self._n_asked)
        stream.ahead = self.n_waiting
        self._streams[request.request_id] = stream
        self._ask(stream)
        return stream

    async def switch(self, config: EngineConfig) -> EngineInfo:
        """Go on with another model. What the engine has in hand ends first; what is asked meanwhile waits.

        Where that cannot be loaded, the present one is loaded again before this raises.

        Raises:
            NotReady: the engine is not ready, or ended by itself before it was through.
            ModelFileError: of the new file.
            EngineFailed: the new engine ended while it was loading, or took too long, or this one was closed.
        """
        if self.state not in (EngineState.READY, EngineState.FAILED):
            raise NotReady(f"the engine is {self.state}")
        has_present, present = self.state is EngineState.READY, self._config
        self._set_state(EngineState.SWITCHING)
        assert self._changed is not None
        while any(stream.n_sends for stream in self._streams.values()) and self._is_switching():
            self._changed.clear()
            await self._changed.wait()
        if not self._is_switching():
            raise NotReady(f"the engine is {self.state}")
        try:
            return await self._load(replace(config, padded_remainders=None))
        except (ModelFileError, EngineFailed) as error:
            log.error("the other model cannot be used (%s): back to the one before", type(error).__name__)
            if self._is_switching():
                if not has_present:
                    self.failure = error
                    self._fail()
                else:
                    await self._load_again(present)
            raise

    def forget(self, person: str, conversation: str = "") -> None:
        """Drop parked KV state of one conversation, or of all of a person's, in RAM and on disk.

        While no engine is there it waits for the next one, which finds on disk what the last one left.
        """
        message = Forget(person, conversation)
        if self._child is not None and self.state in (EngineState.READY, EngineState.SWITCHING):
            self._child.send(message)
        if self.state in (EngineState.LOADING, EngineState.RESTARTING, EngineState.SWITCHING):
            self._to_forget[message] = None

    async def close(self) -> None:
        """End the process; running answers end with ABORT."""
        if self.state is EngineState.CLOSED:
            return
        self._set_state(EngineState.CLOSED)
        self._end_all(Finished(FinishReason.ABORT, 0, 0, 0))
        self._not_switched(EngineFailed("the engine is closed"))
        if self._child is not None:
            await self._child.end()

    def kill(self) -> None:
        """End the process at once, without an event loop; nothing happens where none runs."""
        if self._child is not None:
            self._child.kill()

    def _abort(self, request_id: str) -> None:
        stream = self._streams.get(request_id)
        if stream is None:
            return
        is_given = self.state is EngineState.READY or (self.state is EngineState.SWITCHING and stream.n_sends > 0)
        if self._child is not None and is_given:
            self._child.send(Abort(request_id))
        else:  # not with an engine yet: nothing to stop there
            self._end(stream, Finished(FinishReason.ABORT, 0, 0, 0))

    def _ask(self, stream: TokenStream) -> None:
        """Give the request to the engine, now or as soon as it is ready."""
        if self._child is None or self.state is not EngineState.READY:
            return
        assert self.info is not None
        request = stream.rest(self._config.max_answer_tokens)
        if request is None:
            self._end(stream, Finished(FinishReason.LENGTH, 0, 0, stream.n_decoded))
            return
        stream.n_sends += 1
        self._child.send(Submit(request.for_model(self.info.fingerprint)))
        stream.model = self.info.fingerprint if not stream.has_text or stream.model == self.info.fingerprint else ""

    def _deliver(self, child: Child, message: FromEngine | None) -> None:
        """On the reader's thread: hand over to the loop."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._on_message, child, message)
        except RuntimeError:
            log.debug("the loop closed before the engine's last message")

    def _on_message(self, child: Child, message: FromEngine | None) -> None:
        if child is not self._child or self.state is EngineState.CLOSED:
            return
        match message:
            case Report():
                self._on_report(message)
            case Kernels():
                self.kernels.trying(message)
            case Ready():
                self.kernels.ready()
                before, self.info = self.info, message.info
                is_new = before is not None and before.fingerprint != message.info.fingerprint
                if is_new and self.on_new_model is not None:
                    self.on_new_model()
                self._config = replace(self._config, padded_remainders=message.info.padded_remainders)
                self._set_state(EngineState.READY)
                for forget in self._to_forget:
                    child.send(forget)
                self._to_forget.clear()
                for stream in list(self._streams.values()):
                    self._ask(stream)
                if self._switched is not None and not self._switched.done():
                    self._switched.set_result(message.info)
            case LoadFailed():
                self._on_load_failed(message.error)
            case None:
                self._on_death()

    def _on_report(self, report: Report) -> None:
        self.n_running, self.n_waiting = report.n_running, len(report.waiting_ids)
        n_decoded_total = self._n_decoded_before + report.n_decoded_total
        if n_decoded_total > self.n_decoded_total:
            self._n_failures = 0
        self.n_decoded_total = n_decoded_total
        for request_id, update in report.updates:
            stream = self._streams.get(request_id)
            if stream is None:
                continue
            if isinstance(update, Finished):
                self._end(stream, update)
            else:
                stream.push(update)
        waiting = {request_id: place for place, request_id in enumerate(report.waiting_ids)}
        for request_id, stream in self._streams.items():
            if stream.is_known:
                stream.set_ahead(waiting.get(request_id))

    def _on_load_failed(self, error: ApplianceError) -> None:
        if isinstance(error, WrongNumbers):
            self.kernels.failed(Failure(error.kernels, WRONG))
            self._spawn_and_listen()
        elif isinstance(error, NoKernels):
            self._cannot_load(self.kernels.none_left(self._config.model_path))
        else:
            self._cannot_load(error)

    def _on_death(self) -> None:
        how = self._child.how_it_ended() if self._child is not None else "never begun"
        if self.state is EngineState.READY:
            if self.kernels.after_crash(how):
                self._n_failures = 0  # other kernels come now: nobody has to wait for them,
                for stream in self._streams.values():
                    stream.n_sends = 0  # and no question was the reason
            self._go_on_after(how)
        elif self.state is EngineState.FAILED:
            return
        elif self.kernels.after_loading_ended(how):
            self._spawn_and_listen()
        elif self._switched is not None or self.info is None:
            self._cannot_load(_ended_loading(how))
        else:
            self._go_on_after(how)

    def _spawn_and_listen(self) -> None:
        self.spawn()
        assert self._child is not None
        self._child.listen(self._deliver)

    def _cannot_load(self, error: ApplianceError) -> None:
        if not self._not_switched(error):
            self.failure = error
            self._fail()

    def _go_on_after(self, how: str) -> None:
        """Another engine takes over what this one had in hand, at once or, after many deaths, later."""
        self._n_failures += 1
        log.error("the engine process ended by itself (%s; %s in a row): starting another", how, self._n_failures)
        self.n_running = self.n_waiting = 0
        self.n_restarts += 1
        self._n_decoded_before = self.n_decoded_total
        self._set_state(EngineState.RESTARTING)
        for place, stream in enumerate(list(self._streams.values())):
            if stream.is_known and stream.ahead is not None:
                stream.n_sends -= 1  # it only waited: this death was not its doing
            if stream.is_aborted:
                self._end(stream, Finished(FinishReason.ABORT, 0, 0, 0))
            elif stream.n_sends >= _MAX_SENDS or self._n_failures > _N_SUDDEN:
                self._end(stream, Finished(FinishReason.ERROR, 0, 0, 0, EngineFailed.code))
            else:
                stream.is_known, stream.ahead = False, place
        pause_s = 0.0 if self._n_failures <= _N_SUDDEN else min(_MAX_PAUSE_S, 2.0**self._n_failures)
        assert self._loop is not None
        self._loop.call_later(pause_s, self._restart)

    def _restart(self) -> None:
        if self.state is EngineState.RESTARTING:
            self._spawn_and_listen()

    def _is_switching(self) -> bool:
        return self.state is EngineState.SWITCHING

    async def _load(self, config: EngineConfig) -> EngineInfo:
        """End the present process, which has nothing in hand, and start one with `config`. Raises what kept it."""
        old, self._child = self._child, None
        if old is not None:
            await old.end()
        if not self._is_switching():
            raise EngineFailed(f"the engine is {self.state}")
        self._config = config
        self._n_decoded_before = self.n_decoded_total
        self.n_running = self.n_waiting = 0
        self._switched = asyncio.get_running_loop().create_future()
        self._spawn_and_listen()
        try:
            async with asyncio.timeout(_LOAD_S):
                return await self._switched
        except TimeoutError:
            raise EngineFailed(f"the engine was not ready after {_LOAD_S:.0f} s") from None
        finally:
            self._switched = None

    async def _load_again(self, config: EngineConfig) -> None:
        """The model from before; where that is gone too there is none any more."""
        try:
            await self._load(config)
        except (ModelFileError, EngineFailed) as error:
            if self._is_switching():
                self.failure = error
                self._fail()

    def _not_switched(self, error: ApplianceError) -> bool:
        """Tell whoever switches why it failed; False where nobody does."""
        if self._switched is None or self._switched.done():
            return False
        self._switched.set_exception(error)
        return True

    def _fail(self) -> None:
        self._set_state(EngineState.FAILED)
        self._end_all(Finished(FinishReason.ERROR, 0, 0, 0, EngineFailed.code))

    def _end_all(self, end: Finished) -> None:
        for stream in list(self._streams.values()):
            self._end(stream, end)

    def _end(self, stream: TokenStream, end: Finished) -> None:
        del self._streams[stream.request.request_id]
        if self._changed is not None:
            self._changed.set()
        stream.push(end)
        if self.on_finished is not None:
            self.on_finished(end)

    def _set_state(self, state: EngineState) -> None:
        self.state = state
        if self._changed is not None:
            self._changed.set()


def _ended_loading(how: str) -> EngineFailed:
    if how == "SIGKILL":
        remedy, key = "most likely this PC has too little memory for the model: choose a smaller one", "no_memory"
    else:
        remedy, key = "the log may say why; start the program again, or choose another model", "ended"
    return EngineFailed(f"the engine ended while it was loading ({how}): {remedy}.", key, how=how)
