"""GET /api/stream?prompt=...: one question, answered as plain server-sent events for a browser's EventSource.

The question belongs to the page's person; nothing of it is kept for a next one. EventSource cannot send headers, see a
status or read the body of a refusal, so a refused question is an event too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from appliance.access.rate_limits import RateLimits
from appliance.access.rights import caller_of
from appliance.answers.answer import Answer, AnswerState
from appliance.base.errors import ApplianceError, EmptyInput, UnknownPerson
from appliance.chat import guard
from appliance.chat.service import ChatService
from appliance.engine.request import Message, SamplingParams
from appliance.http.api_errors import (
    code_of,
    failure_of,
    finish_reason_of,
    refusal,
    sentence_of,
    status_of,
    usage_of,
    wait_s_of,
)
from appliance.settings.schema import Settings

MAX_PROMPT_CHARS = 2000
"""What an address may carry, whatever the longest message is."""
_HEARTBEAT_S = 2.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def make_stream_router(chat: ChatService, settings: Settings, limits: RateLimits) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.get("/api/stream")
    async def stream(request: Request, prompt: str = "") -> Response:
        """One answer, word by word."""
        # Whoever accepts a page has followed a link, perhaps a foreign one. Foreign pages do not get this far.
        if "text/event-stream" not in request.headers.get("accept", ""):
            return refusal("not_an_event_source")
        if "last-event-id" in request.headers:
            return Response(status_code=204)  # an EventSource that lost its stream: the question is not asked again
        person = caller_of(request).person
        if person is None:
            return refusal(UnknownPerson.code)
        try:
            question = guard.refuse_long(prompt, min(MAX_PROMPT_CHARS, settings.max_input_chars))
            if not question:
                raise EmptyInput("nothing was asked")
            limits.question(caller_of(request))
            answer = await chat.complete(
                [Message("user", question)],
                person=person,
                max_tokens=None,
                sampling=SamplingParams(),
                stop=(),
                is_page=True,
            )
        except ApplianceError as error:
            chat.watch.metrics.refused(code_of(error))
            return _events(_refused(code_of(error), wait_s_of(error, chat.watch.load_shedding.retry_after_s())))
        return _events(_written(answer))

    return router


def _events(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


async def _refused(code: str, retry_after_s: int) -> AsyncIterator[str]:
    more = {"retry_after_s": retry_after_s} if status_of(code) in (429, 503) else {}
    yield _beginning("refused")
    yield _event("error", {"code": code, "message": sentence_of(code), **more})


async def _written(answer: Answer) -> AsyncIterator[str]:
    n_sent = 0
    try:
        yield _beginning(answer.request_id)
        async with contextlib.aclosing(answer.follow(heartbeat_s=_HEARTBEAT_S)) as updates:
            async for _ in updates:
                if len(answer.text) > n_sent:
                    text, n_sent = answer.text[n_sent:], len(answer.text)
                    yield _data(text)
                elif answer.state is not AnswerState.DONE:
                    yield ": waiting\n\n"
        if (code := failure_of(answer)) is not None:
            yield _event("error", {"code": code, "message": sentence_of(code)})
        else:
            yield _event("done", {"finish_reason": finish_reason_of(answer), "usage": usage_of(answer)})
    finally:
        answer.end()  # the reader has gone; without effect on an answer that is over


def _beginning(event_id: str) -> str:
    """A browser connects again whenever a stream ends; having been given an id, it then names it."""
    return f"id: {event_id}\n\n"


def _data(text: str) -> str:
    """A piece of text so that `event.data` is exactly it: a line of data for every line of the text."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
