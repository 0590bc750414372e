"""One request seen from the web side: what has arrived of its answer, and where it stands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from appliance.engine.request import Delta, Finished, Message, Request, Started, Update


class TokenStream:
    """The updates of one request: Started, Delta ..., Finished last. Belongs to the event loop's thread."""

    def __init__(self, request: Request, abort: Callable[[str], None], number: int) -> None:
        self.request = request
        self.number = number
        self.n_decoded = 0
        self.ahead: int | None = 0
        """Requests before it in the engine's waiting list; None once it is being computed."""
        self.n_sends = 0
        """How often an engine got it, not counting those in which it only waited."""
        self.model = ""
        """Fingerprint of the model whose tokens have been written; "" where there were several."""
        self.is_known = False
        """The present engine has said that it has it."""
        self.is_aborted = False
        self._written: list[Delta] = []
        self._updates: deque[Update] = deque()
        self._arrived = asyncio.Event()
        self._abort = abort

    def abort(self) -> None:
        """End the answer; Finished follows within one step."""
        self.is_aborted = True
        self._abort(self.request.request_id)

    async def __aiter__(self) -> AsyncIterator[Update]:
        while True:
            while self._updates:
                update = self._updates.popleft()
                yield update
                if isinstance(update, Finished):
                    return
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def has_text(self) -> bool:
        """Text may have reached the reader."""
        return bool(self._written)

    def rest(self, max_answer_tokens: int) -> Request | None:
        """What is left to be answered: the request, with what has been written as the answer to go on with. None where
        that is as long as it may be.

        `max_answer_tokens`: of the engine, as far as the request asks for no less.
        """
        if not self._written:
            return self.request
        n_left = min(self.request.max_tokens, max_answer_tokens) - self.n_decoded
        if n_left <= 0:
            return None
        request = self.request.for_model(self.model)
        text = "".join(delta.text for delta in self._written)
        ids = tuple(token_id for delta in self._written for token_id in delta.token_ids) if self.model else None
        messages, last = request.messages, request.messages[-1]
        if last.role == "assistant":  # the request was to go on with an answer itself
            messages, text = messages[:-1], last.text + text
            ids = None if ids is None or last.token_ids is None else last.token_ids + ids
        answer = Message("assistant", text, ids)
        return replace(request, messages=(*messages, answer), max_tokens=n_left, model=self.model)

    def set_ahead(self, ahead: int | None) -> None:
        """Note the place in the engine's waiting list."""
        self.ahead = ahead

    def push(self, update: Update) -> None:
        """Hand the reader one more update. Started comes again when another engine takes the request over."""
        if isinstance(update, Started):
            self.is_known = True
        elif isinstance(update, Delta):
            self._written.append(update)
            self.n_decoded += len(update.token_ids)
        self._updates.append(update)
        self._arrived.set()
