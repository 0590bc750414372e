"""The HTTP routes for programs: chat completions and models in OpenAI's shape, health, readiness, metrics.

And a page's place in line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from appliance.access.person import Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import caller_of
from appliance.answers.answer import Answer, AnswerState, Origin
from appliance.base.errors import ApplianceError, Closing
from appliance.chat.service import ChatService
from appliance.http.api_errors import body_of, code_of, failure_of, finish_reason_of, refusal, usage_of, wait_s_of
from appliance.http.api_request import ApiError, conversation, parse
from appliance.http.web import error_body
from appliance.metrics.registry import CONTENT_TYPE
from appliance.settings.schema import Settings

_WATCH_S = 0.25
_HEARTBEAT_S = 5.0
_REFUSAL_WAIT_S = 1.0
"""How long a stream's first byte is held back, so that a refusal by the engine is a status and not an event."""
_NOT_KEPT = {"cache-control": "no-store"}


def make_router(chat: ChatService, persons: Persons, settings: Settings, limits: RateLimits) -> APIRouter:
    """The routes; everything they need is passed in."""
    router = APIRouter()
    started_at = int(time.time())

    @router.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> JSONResponse:
        code = chat.not_ready_code
        return JSONResponse({"status": code or "ready"}, status_code=503 if code else 200)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(chat.watch.metrics.text(), headers={**_NOT_KEPT, "content-type": CONTENT_TYPE})

    @router.get("/place")
    async def place(request: Request) -> JSONResponse:
        key = persons.of(request.cookies), persons.tab_of(request.headers)
        ahead, conversation = chat.place(*key), chat.conversation(*key)
        closing = chat.not_ready_code == Closing.code
        wait_s = None if ahead is None else round(chat.watch.load_shedding.wait_s(ahead))
        body = {"ahead": ahead, "wait_s": wait_s, "closing": closing}
        body |= {"running": conversation.running is not None, "n_turns": len(conversation.turns)}
        return JSONResponse(body, headers=_NOT_KEPT)

    @router.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [_model(name, started_at) for name in _model_names(chat)]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> JSONResponse:
        return JSONResponse(_model(name, started_at)) if name in _model_names(chat) else refusal("not_found")

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        try:
            wanted = parse(await request.body())
            limits.question(caller_of(request))
            answer = await chat.complete(
                conversation(wanted.messages, settings.max_input_chars),
                person=f"{caller_of(request).program} {wanted.user or ''}",
                max_tokens=wanted.max_tokens,
                sampling=wanted.sampling,
                stop=wanted.stops,
                fresh="no-cache" in request.headers.get("cache-control", ""),
            )
        except ApiError as error:
            chat.watch.metrics.refused(error.code)
            return _refused_parameter(error)
        except ApplianceError as error:
            chat.watch.metrics.refused(code_of(error))
            return refusal(code_of(error), wait_s_of(error, chat.watch.load_shedding.retry_after_s()))
        reply = _Reply(answer, wanted.model or _model_name(chat), int(time.time()))
        if wanted.stream:
            include_usage = bool(wanted.stream_options and wanted.stream_options.include_usage)
            return await _streamed(chat, reply, include_usage=include_usage)
        return await _whole(chat, request, reply)

    @router.api_route("/v1/{_rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def nothing(_rest: str) -> JSONResponse:
        return refusal("not_found")

    return router


@dataclass(frozen=True)
class _Reply:
    """What all chunks of one reply have in common."""

    answer: Answer
    model: str
    created: int
    """Unix time, s."""

    def head(self, kind: str) -> dict[str, Any]:
        """The fields every object of the reply begins with."""
        return {
            "id": f"chatcmpl-{self.answer.request_id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def chunk(self, delta: dict[str, str], finish_reason: str | None) -> str:
        """One event of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**self.head("chat.completion.chunk"), "choices": [choice]})


async def _whole(chat: ChatService, request: Request, reply: _Reply) -> Response:
    """Wait for the end; a client that leaves ends the answer."""
    answer = reply.answer
    async with contextlib.aclosing(answer.follow(heartbeat_s=_WATCH_S)) as updates:
        async for _ in updates:
            if answer.state is not AnswerState.DONE and await request.is_disconnected():
                answer.end()
    if (code := failure_of(answer)) is not None:
        return refusal(code, chat.watch.load_shedding.retry_after_s())
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason_of(answer)}
    body = {**reply.head("chat.completion"), "choices": [choice], "usage": usage_of(answer)}
    return JSONResponse(body, headers=_origin_header(answer))


async def _streamed(chat: ChatService, reply: _Reply, *, include_usage: bool) -> Response:
    """A stream of events; a refusal that comes at once is a status instead."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_WAIT_S):
            await reply.answer.wait_begun()
    code = failure_of(reply.answer)
    if code is not None and not reply.answer.text:
        return refusal(code, chat.watch.load_shedding.retry_after_s())
    headers = {"cache-control": "no-store", "x-accel-buffering": "no", **_origin_header(reply.answer)}
    return StreamingResponse(
        _events(reply, include_usage=include_usage), media_type="text/event-stream", headers=headers
    )


async def _events(reply: _Reply, *, include_usage: bool) -> AsyncIterator[str]:
    answer = reply.answer
    n_sent = 0
    try:
        yield reply.chunk({"role": "assistant", "content": ""}, None)
        async with contextlib.aclosing(answer.follow(heartbeat_s=_HEARTBEAT_S)) as updates:
            async for _ in updates:
                if len(answer.text) > n_sent:
                    text, n_sent = answer.text[n_sent:], len(answer.text)
                    yield reply.chunk({"content": text}, None)
                elif answer.state is not AnswerState.DONE:
                    yield ": waiting\n\n"  # a comment: keeps the connection alive and shows when it is not
        if (code := failure_of(answer)) is not None:
            yield _event(body_of(code))
        else:
            yield reply.chunk({}, finish_reason_of(answer))
            if include_usage:
                yield _event({**reply.head("chat.completion.chunk"), "choices": [], "usage": usage_of(answer)})
        yield "data: [DONE]\n\n"
    finally:
        answer.end()  # the client has gone; without effect on an answer that is over


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _origin_header(answer: Answer) -> dict[str, str]:
    """Says whether a saved answer was given. A request with `cache-control: no-cache` gets a fresh one."""
    return {"x-office-chat-cache": "hit" if answer.origin is Origin.SAVED else "miss"}


def _model_names(chat: ChatService) -> list[str]:
    name = _model_name(chat)
    return [name] if name else []


def _model_name(chat: ChatService) -> str:
    info = chat.engine.info
    return info.model_name if info is not None else ""


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "office-chat"}


def _refused_parameter(error: ApiError) -> JSONResponse:
    body = error_body(str(error), kind="invalid_request_error", code=error.code, param=error.param)
    return JSONResponse(body, status_code=error.status)
