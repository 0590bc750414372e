"""What a program is told when it gets no answer: status, code and sentence, in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from appliance.answers.answer import Answer, Origin
from appliance.base.errors import (
    AlreadyAnswering,
    ApplianceError,
    Busy,
    Closing,
    EmptyInput,
    EngineFailed,
    InputTooLong,
    NotReady,
    Overloaded,
    SavedOnly,
    TooFast,
    UnknownPerson,
)
from appliance.engine.request import FinishReason
from appliance.http.web import error_body

_STATUS = {
    Busy.code: 503,
    SavedOnly.code: 503,
    Overloaded.code: 503,
    NotReady.code: 503,
    Closing.code: 503,
    EngineFailed.code: 503,
    "no_room": 503,
    AlreadyAnswering.code: 429,
    TooFast.code: 429,
    UnknownPerson.code: 401,
    InputTooLong.code: 413,
    "system_prompt_too_long": 413,
    "context_full": 413,
    EmptyInput.code: 422,
    "bad_conversation": 422,
    "not_found": 404,
    "stopped": 409,
    "not_an_event_source": 406,
}
_SENTENCE = {
    Busy.code: "Busy right now: every place is taken. Please try again shortly.",
    SavedOnly.code: "Busy right now: only saved and quick answers are given. Please try again later.",
    Overloaded.code: "Busy right now: too many people are asking. Please try again later.",
    NotReady.code: "The model is not ready. Please try again in a moment.",
    Closing.code: "The program is shutting down.",
    EngineFailed.code: "The engine ended while it was writing. Please ask again.",
    "no_room": "The engine ran out of room for this answer. Please ask again.",
    AlreadyAnswering.code: "As many answers as one person may have are being written already.",
    TooFast.code: "That was a lot of questions in a short time. Please ask again later.",
    UnknownPerson.code: "The request carries no cookie of a page of this program.",
    InputTooLong.code: "A message is longer than this server takes.",
    "system_prompt_too_long": "The system message leaves no room for a question.",
    "context_full": "The answer to be continued fills the whole context.",
    EmptyInput.code: "The last message is empty.",
    "bad_conversation": "These messages are no conversation this model can read.",
    "stopped": "This answer was stopped by its person.",
    "not_found": "There is no such route or model here.",
    "not_an_event_source": "This route answers the EventSource of a page of this program.",
}


def status_of(code: str) -> int:
    """The HTTP status of an error code; 500 for one nobody foresaw."""
    return _STATUS.get(code, 500)


def sentence_of(code: str) -> str:
    """What a program's author reads of it."""
    return _SENTENCE.get(code, "Something went wrong here.")


def body_of(code: str) -> dict[str, Any]:
    """The error as an object."""
    kind = "invalid_request_error" if status_of(code) < 500 else "server_error"
    return error_body(sentence_of(code), kind=kind, code=code)


def refusal(code: str, retry_after_s: int = 1) -> JSONResponse:
    """The error as an answer. `retry_after_s` is said where coming back later helps."""
    status = status_of(code)
    headers = {"retry-after": str(retry_after_s)} if status in (429, 503) else None
    return JSONResponse(body_of(code), status_code=status, headers=headers)


def wait_s_of(error: ApplianceError, otherwise: int) -> int:
    """When to come back, s: what the error says, where it says so."""
    return error.wait_s if isinstance(error, TooFast) else otherwise


def code_of(error: ApplianceError) -> str:
    """The code an error carries."""
    return str(getattr(error, "code", "internal_error"))


def failure_of(answer: Answer) -> str | None:
    """The code of what went wrong, None for an answer that is fine so far."""
    if answer.finish is FinishReason.ERROR:
        return answer.error
    if answer.finish is FinishReason.ABORT:
        return Closing.code if Closing.code in answer.notices else "stopped"
    return None


def finish_reason_of(answer: Answer) -> str:
    """OpenAI's word for how it ended."""
    if answer.origin is Origin.BLOCKED:
        return "content_filter"
    return "length" if answer.finish is FinishReason.LENGTH else "stop"


def usage_of(answer: Answer) -> dict[str, Any]:
    """Tokens, as the engine counted them."""
    finished = answer.finished
    n_prompt, n_cached, n_decoded = (
        (finished.n_prompt, finished.n_cached, finished.n_decoded) if finished is not None else (0, 0, 0)
    )
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_decoded,
        "total_tokens": n_prompt + n_decoded,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }
