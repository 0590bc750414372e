"""The HTTP routes of our own: chat completions in OpenAI's shape, health, readiness, and the place in line."""

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

from appliance.answer import Answer, AnswerState
from appliance.api_request import ApiError, conversation, parse
from appliance.chat import ChatService
from appliance.engine.request import FinishReason
from appliance.errors import (
    AlreadyAnswering,
    ApplianceError,
    Busy,
    Closing,
    EmptyInput,
    EngineFailed,
    InputTooLong,
    NotReady,
)
from appliance.person import Persons
from appliance.settings import Settings
from appliance.web import error_body

RETRY_AFTER_S = 5
_WATCH_S = 0.25
_HEARTBEAT_S = 5.0
_REFUSAL_WAIT_S = 1.0
"""How long a stream's first byte is held back, so that a refusal by the engine is a status and not an event."""

_STATUS = {
    Busy.code: 503,
    NotReady.code: 503,
    Closing.code: 503,
    EngineFailed.code: 503,
    AlreadyAnswering.code: 429,
    InputTooLong.code: 413,
    "system_prompt_too_long": 413,
    "context_full": 413,
    EmptyInput.code: 422,
    "bad_conversation": 422,
}
_SENTENCE = {
    Busy.code: "Busy right now: every place is taken. Please try again shortly.",
    NotReady.code: "The model is not ready. Please try again in a moment.",
    Closing.code: "The program is shutting down.",
    EngineFailed.code: "The engine ended while it was writing. Please ask again.",
    InputTooLong.code: "A message is longer than this server takes.",
    "system_prompt_too_long": "The system message leaves no room for a question.",
    "context_full": "The answer to be continued fills the whole context.",
    EmptyInput.code: "The last message is empty.",
    "bad_conversation": "These messages are no conversation this model can read.",
}


def make_router(chat: ChatService, persons: Persons, settings: Settings) -> APIRouter:
    """The routes; everything they need is passed in."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> JSONResponse:
        code = chat.not_ready_code
        return JSONResponse({"status": code or "ready"}, status_code=503 if code else 200)

    @router.get("/place")
    async def place(request: Request) -> JSONResponse:
        ahead = chat.place(persons.of(request.cookies), persons.tab_of(request.headers))
        closing = chat.not_ready_code == Closing.code
        return JSONResponse({"ahead": ahead, "closing": closing}, headers={"cache-control": "no-store"})

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        try:
            wanted = parse(await request.body())
            answer = await chat.complete(
                conversation(wanted.messages, settings.max_input_chars),
                person=_program(request, wanted.user),
                max_tokens=wanted.max_tokens,
                sampling=wanted.sampling,
                stop=wanted.stops,
            )
        except ApiError as error:
            return _refusal(error.status, error.code, str(error), error.param)
        except ApplianceError as error:
            return _refusal_for(_code(error))
        reply = _Reply(answer, wanted.model or _model_name(chat), int(time.time()))
        if wanted.stream:
            return await _streamed(
                reply, include_usage=bool(wanted.stream_options and wanted.stream_options.include_usage)
            )
        return await _whole(request, reply)

    return router


def _program(request: Request, user: str | None) -> str:
    """Who asks, for fair shares and kept KV state: the computer, and the person a program there asks for."""
    host = request.client.host if request.client is not None else ""
    return f"program {host} {user or ''}"


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

    def usage(self) -> dict[str, Any]:
        """Tokens, as the engine counted them."""
        finished = self.answer.finished
        n_prompt, n_cached, n_decoded = (
            (finished.n_prompt, finished.n_cached, finished.n_decoded) if finished is not None else (0, 0, 0)
        )
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_decoded,
            "total_tokens": n_prompt + n_decoded,
            "prompt_tokens_details": {"cached_tokens": n_cached},
        }

    def chunk(self, delta: dict[str, str], finish_reason: str | None) -> str:
        """One event of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**self.head("chat.completion.chunk"), "choices": [choice]})


async def _whole(request: Request, reply: _Reply) -> Response:
    """Wait for the end; a client that leaves ends the answer."""
    answer = reply.answer
    async with contextlib.aclosing(answer.follow(heartbeat_s=_WATCH_S)) as updates:
        async for _ in updates:
            if answer.state is not AnswerState.DONE and await request.is_disconnected():
                answer.end()
    if (code := _failure(answer)) is not None:
        return _refusal_for(code)
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
    return JSONResponse({**reply.head("chat.completion"), "choices": [choice], "usage": reply.usage()})


async def _streamed(reply: _Reply, *, include_usage: bool) -> Response:
    """A stream of events; a refusal that comes at once is a status instead."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_WAIT_S):
            await reply.answer.wait_begun()
    code = _failure(reply.answer)
    if code is not None and not reply.answer.text:
        return _refusal_for(code)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
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
        if (code := _failure(answer)) is not None:
            yield _event(_error(code))
        else:
            yield reply.chunk({}, _finish_reason(answer))
            if include_usage:
                yield _event({**reply.head("chat.completion.chunk"), "choices": [], "usage": reply.usage()})
        yield "data: [DONE]\n\n"
    finally:
        answer.end()  # the client has gone; without effect on an answer that is over


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _finish_reason(answer: Answer) -> str:
    return "length" if answer.finish is FinishReason.LENGTH else "stop"


def _failure(answer: Answer) -> str | None:
    """The code of what went wrong, None for an answer that is fine so far."""
    if answer.finish is FinishReason.ERROR:
        return answer.error
    if answer.finish is FinishReason.ABORT:
        return Closing.code
    return None


def _code(error: ApplianceError) -> str:
    return str(getattr(error, "code", "internal_error"))


def _model_name(chat: ChatService) -> str:
    info = chat.engine.info
    return info.model_name if info is not None else ""


def _error(code: str) -> dict[str, Any]:
    kind = "invalid_request_error" if _STATUS.get(code, 500) < 500 else "server_error"
    return error_body(_SENTENCE.get(code, "Something went wrong here."), kind=kind, code=code)


def _refusal_for(code: str) -> JSONResponse:
    status = _STATUS.get(code, 500)
    headers = {"retry-after": str(RETRY_AFTER_S)} if status in (429, 503) else None
    return JSONResponse(_error(code), status_code=status, headers=headers)


def _refusal(status: int, code: str, message: str, param: str | None) -> JSONResponse:
    return JSONResponse(error_body(message, kind="invalid_request_error", code=code, param=param), status_code=status)
