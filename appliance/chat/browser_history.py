"""A conversation as its reader's browser keeps it: plain text, given out after every answer and taken back later.

What comes back is the person's own, and nothing else: it may have been changed there, so it passes the same limits as
a message, has no token ids, and is no more to the model than what a program sends as its history.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from appliance.answers.answer import Origin
from appliance.base.errors import EmptyInput, Refused
from appliance.chat import guard
from appliance.chat.sessions import MAX_TURNS, Turn, Verdict
from appliance.engine.request import FinishReason

MAX_ANSWER_CHARS: Final = 100_000
"""Longest answer taken back; the engine uses of it what fits."""
MAX_CHARS: Final = 100_000
"""Of a whole conversation that is taken back, its newest turns: far more than any context here holds."""

Code = Annotated[str, Field(max_length=40)]


class BadConversation(Refused):
    """What should be a kept conversation is none."""

    code = "bad_conversation"


class KeptTurn(BaseModel):
    """One question with its answer."""

    model_config = ConfigDict(strict=True)

    question: str
    text: str = ""
    notices: list[Code] = Field(default=[], max_length=8)
    more: bool = False
    """Whether the answer can be continued."""
    origin: str = Origin.MODEL.value
    saved_at: float | None = None
    verdict: Verdict = ""


class _Conversation(BaseModel):
    model_config = ConfigDict(strict=True)

    turns: list[KeptTurn] = Field(max_length=MAX_TURNS)


def give(turn: Turn) -> dict[str, Any]:
    """What a browser may keep of a turn."""
    notices = [*turn.notices, *(["engine_failed"] if turn.finish is FinishReason.ERROR else [])]
    return KeptTurn(
        question=turn.question,
        text=turn.text,
        notices=notices[:8],
        more=turn.can_continue,
        origin=turn.origin.value,
        saved_at=turn.saved_at,
        verdict=turn.verdict,
    ).model_dump()


def take(body: str | bytes, max_input_chars: int) -> list[Turn]:
    """The turns of `{"turns": [...]}`, cleaned and cut like any message, the newest MAX_CHARS of them. Questions with
    nothing in them are left out.

    Raises:
        BadConversation: it is no such thing.
    """
    try:
        kept = _Conversation.model_validate_json(body).turns
        turns: list[Turn] = []
        n_chars = 0
        for each in reversed(kept):
            turn = _turn(each, max_input_chars)
            n_chars += len(turn.question) + len(turn.text)
            if n_chars > MAX_CHARS:
                break
            if turn.question:
                turns.append(turn)
    except (ValidationError, ValueError) as error:
        raise BadConversation("this is no conversation a browser has kept") from error
    return turns[::-1]


def _turn(kept: KeptTurn, max_input_chars: int) -> Turn:
    try:
        question, _ = guard.cut(kept.question, max_input_chars)
    except EmptyInput:
        question = ""
    return Turn(
        question=question,
        text=guard.clean(kept.text[:MAX_ANSWER_CHARS]),
        token_ids=(),
        finish=FinishReason.LENGTH if kept.more else FinishReason.STOP,
        notices=tuple(kept.notices),
        origin=Origin(kept.origin),
        saved_at=kept.saved_at,
        verdict=kept.verdict,
    )
