"""One life of the engine's process, seen from the web side: its connection and the two threads that serve it."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from appliance.engine.config import EngineConfig
from appliance.engine.kernels import name_of_end
from appliance.engine.process import main
from appliance.engine.wire import Close, FromEngine, ToEngine

_CLOSE_S = 1.4


class Child:
    """Starts with it. Messages can be sent from any thread."""

    def __init__(self, config: EngineConfig) -> None:
        context = multiprocessing.get_context("spawn")  # a forked copy of a threaded process can deadlock
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=main, args=(theirs, config), name="engine", daemon=True)
        self.process.start()
        theirs.close()
        self._outbox: queue.SimpleQueue[ToEngine | None] = queue.SimpleQueue()

    def listen(self, deliver: Callable[[Child, FromEngine | None], None]) -> None:
        """Start the threads. `deliver` is called on the reader's thread; None says the process is gone."""
        threading.Thread(target=self._read, args=(deliver,), name="engine-reader", daemon=True).start()
        threading.Thread(target=self._write, name="engine-writer", daemon=True).start()

    def send(self, message: ToEngine) -> None:
        """Queue a message; never blocks, even while the engine is inside a step."""
        self._outbox.put(message)

    async def end(self) -> None:
        """Ask the process to end, and end it where it does not."""
        self.send(Close())
        await asyncio.to_thread(self.process.join, _CLOSE_S)
        if self.process.is_alive():  # inside a long step
            self.process.kill()
            await asyncio.to_thread(self.process.join, _CLOSE_S)

    def how_it_ended(self) -> str:
        """See `kernels.name_of_end`."""
        return name_of_end(self.process.exitcode)

    def kill(self) -> None:
        """End the process at once, without an event loop."""
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_CLOSE_S)

    def _read(self, deliver: Callable[[Child, FromEngine | None], None]) -> None:
        try:
            while True:
                deliver(self, self.connection.recv())
        except (EOFError, OSError):
            self._outbox.put(None)
            self.process.join()
            deliver(self, None)

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self.connection.send(message)
            except OSError:
                return  # the reader sees the same end and reports it
