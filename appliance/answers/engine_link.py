"""What the gateway asks of an engine. Ours runs in a child process; others, over OpenAI's protocol, may come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from appliance.answers.answer import Source
from appliance.engine.client import EngineState
from appliance.engine.request import EngineInfo, Finished, Request, Running, Update


class Stream(Source, Protocol):
    """The engine's side of one answer."""

    def __aiter__(self) -> AsyncIterator[Update]:
        """Started, Delta ..., Finished last."""


class Engine(Protocol):
    """See the module."""

    @property
    def state(self) -> EngineState:
        """Whether it can answer."""

    @property
    def info(self) -> EngineInfo | None:
        """What it says of itself, once it is ready."""

    @property
    def n_running(self) -> int:
        """Requests that hold a slot."""

    @property
    def n_waiting(self) -> int:
        """Requests it holds but does not compute yet."""

    @property
    def running(self) -> Sequence[Running]:
        """How far the answers are that hold a slot, or were asked for just now: there may be more than slots."""

    @property
    def n_decoded_total(self) -> int:
        """Tokens generated since the program started."""

    @property
    def n_restarts(self) -> int:
        """How often it ended by itself."""

    on_finished: Callable[[Finished], None] | None
    """Told of every request that is over, however it ended."""

    def submit(self, request: Request) -> Stream:
        """Ask. Raises NotReady when no answer can ever come."""

    def forget(self, person: str, conversation: str = "") -> None:
        """Drop whatever it keeps of one conversation, or of all of a person's."""
