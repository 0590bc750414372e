"""A chat completion request in OpenAI's shape: what is taken of it, and what is refused, by name."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from appliance.base.errors import ApplianceError, EmptyInput, InputTooLong
from appliance.chat import guard
from appliance.engine.request import Message, SamplingParams

MAX_MESSAGES = 500
MAX_CHARS = 100_000
"""Characters of all messages of one request together; far more than any context here holds."""
MAX_STOPS = 4
_MAX_FIELDS = 100
MAX_NAME_CHARS = 500
"""Of a stop string, and of what names a model or a user."""


_ASKS_FOR_NOTHING: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "logprobs": (False,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (False, True),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "metadata": ({},),
}
"""Parameters that are not supported, with the values some clients send always and that change nothing."""


def _a_number(value: Any) -> Any:
    """JSON's `true` is no number, though Python's is; nor is a text that looks like one."""
    if isinstance(value, bool | str):
        raise ValueError("must be a number")
    return value


Integer = Annotated[int, BeforeValidator(_a_number)]
Number = Annotated[float, BeforeValidator(_a_number), Field(allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TextPart(_Strict):
    """One part of a message; texts only."""

    type: Literal["text"]
    text: str


class ChatMessage(_Strict):
    """One message as a client sends it: many send an answer back with every field it came with, most of them null."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: Name = ""
    """Who of several speaks; no model here is told."""
    annotations: list[Any] = Field(default=[], max_length=0)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        # An answer of nothing but null is one that says nothing.
        return {"content": "", **given} if given.get("role") == "assistant" else given


class StreamOptions(_Strict):
    """What a stream is to hold besides text."""

    include_usage: bool = False


class ChatRequest(_Strict):
    """What is supported of a chat completion request; anything else is refused by its name."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: Name = ""
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    top_p: Number | None = Field(default=None, gt=0, le=1)
    top_k: Integer | None = Field(default=None, ge=0, lt=2**31)
    max_tokens: Integer | None = Field(
        default=None, ge=1, validation_alias=AliasChoices("max_tokens", "max_completion_tokens")
    )
    seed: Integer | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: Stop | list[Stop] | None = None
    user: Name | None = None
    """For whom the program asks: each has a share and conversations of its own."""

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, data: Any) -> Any:
        """Where a client names the longest answer in both ways, the newer one counts."""
        if isinstance(data, dict) and {"max_tokens", "max_completion_tokens"} <= data.keys():
            return {name: value for name, value in data.items() if name != "max_tokens"}
        return data

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, however they were given."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are to be drawn."""
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, seed=self.seed)


class ApiError(ApplianceError):
    """A request that cannot be taken as it is: which parameter, and why."""

    def __init__(self, message: str, *, param: str | None, status: int = 422, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


def parse(body: bytes) -> ChatRequest:
    """The request, or ApiError with the parameter that is wrong."""
    try:
        data: Any = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError("The body is not valid JSON.", param=None, status=400, code="invalid_json") from None
    if not isinstance(data, dict):
        raise ApiError("The body must be a JSON object.", param=None, status=400, code="invalid_json")
    _check_size(data)
    data = {name: value for name, value in data.items() if not _is_nothing(name, value)}
    try:
        wanted = ChatRequest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            param = ".".join(str(part) for part in first["loc"])
            message = f"This server does not support the parameter '{param}'."
            raise ApiError(message, param=param, code="unsupported_parameter") from None
        if param == "messages":
            message = "messages: each is a role and a text, or a list of parts of type text."
            raise ApiError(message, param=param) from None
        raise ApiError(f"{param}: {first['msg']}.", param=param) from None
    if len(wanted.stops) > MAX_STOPS:
        raise ApiError(f"stop: at most {MAX_STOPS} strings are taken.", param="stop")
    return wanted


def _check_size(data: dict[str, Any]) -> None:
    """Pydantic names every field that is wrong, which takes half a second where there are a hundred thousand."""
    messages = data.get("messages")
    listed = messages if isinstance(messages, list) else []
    if len(listed) > MAX_MESSAGES:
        raise ApiError(f"messages: at most {MAX_MESSAGES} are taken.", param="messages", status=413, code="too_long")
    tables = [data, *(message for message in listed if isinstance(message, dict))]
    if any(len(table) > _MAX_FIELDS for table in tables):
        raise ApiError(f"At most {_MAX_FIELDS} parameters are taken.", param=None, code="unsupported_parameter")


def _refuse_constant(name: str) -> None:
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(name)


def _is_nothing(name: str, value: Any) -> bool:
    """Whether leaving this parameter out asks for the same. `1 == True`, which JSON keeps apart."""
    same = (known for known in _ASKS_FOR_NOTHING.get(name, ()) if type(known) is type(value))
    return value is None or value in same


def conversation(messages: list[ChatMessage], max_input_chars: int) -> list[Message]:
    """The messages as the engine wants them: one system message at most, then user and assistant in turn.

    Neighbours of one role become one message. A system message after the first others is told where it stands, as part
    of the user's side; before an answer that comes first (a greeting) stands a question without words. The length limit
    holds for what users say.
    """
    merged: list[Message] = []
    n_chars = n_user_chars = 0
    for message in messages:
        raw = message.content if isinstance(message.content, str) else "".join(part.text for part in message.content)
        n_chars += len(raw)
        if n_chars > MAX_CHARS:
            text = f"messages: at most {MAX_CHARS} characters are taken in all."
            raise ApiError(text, param="messages", status=413, code="too_long")
        role: Literal["system", "user", "assistant"] = "system" if message.role == "developer" else message.role
        if role == "system" and any(earlier.role != "system" for earlier in merged):
            role = "user"
        text = guard.clean(raw)
        if role == "assistant" and (not merged or merged[-1].role == "system"):
            merged.append(Message("user", ""))
        goes_on = bool(merged) and merged[-1].role == role
        if message.role == "user":
            n_user_chars = (n_user_chars if goes_on else 0) + len(text)
            _check_length(n_user_chars, max_input_chars)
        if goes_on:
            text = "\n\n".join(filter(None, (merged.pop().text, text)))
        merged.append(Message(role, text))
    if merged[-1].role != "user":
        raise ApiError("The last message must be the user's: this server starts no second answer.", param="messages")
    if not merged[-1].text:
        raise EmptyInput("the last message is empty")
    return merged


def _check_length(n_chars: int, max_chars: int) -> None:
    if n_chars > max_chars:
        message = f"A message has {n_chars} characters; at most {max_chars} are taken."
        raise ApiError(message, param="messages", status=413, code=InputTooLong.code)
