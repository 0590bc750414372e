"""A conversation to the tokens of one prompt.

The model's own chat template is rendered with a placeholder for every message, and only the text between the
placeholders is read with its markers; what people wrote can therefore never become a marker, and an answer
of ours goes in as the very tokens that were generated.

History that no longer fits is cut once, down to half the room, so that the next turns find the same prefix again.
The cut depends on nothing but the messages: the same conversation is always cut at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from appliance.base.errors import ApplianceError, InputTooLong
from appliance.engine.backend import Vocabulary
from appliance.engine.chat_template import ChatTemplate, TemplateRefuses
from appliance.engine.request import Message

_PLACEHOLDER = re.compile("\ue000([0-9]+)\ue001")
_MIN_INPUT_TOKENS = 32
_BETWEEN = "\n\n"
"""Between the owner's words and the first question, where the template takes no system message."""


class BadMessages(ApplianceError):
    """The messages are not a conversation, or not one this model's template can render."""

    code = "bad_conversation"


class ContextFull(ApplianceError):
    """The answer to be continued fills the whole context."""

    code = "context_full"


class SystemPromptTooLong(ApplianceError):
    """The system prompt leaves no room for a question."""

    code = "system_prompt_too_long"


@dataclass(frozen=True)
class Prompt:
    """Tokens to evaluate, and what had to be left out of them."""

    token_ids: list[int]
    n_shared: int
    """Tokens before the first thing the person wrote: the same for everybody with this system prompt."""
    n_dropped_messages: int
    input_cut: bool


class _Part(NamedTuple):
    """One message as tokens, without what the template puts around it."""

    role: str
    token_ids: list[int]


class PromptBuilder:
    """Knows the template and the limits of one model. Pure: the same messages give the same tokens."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: str,
        template_globals: Mapping[str, Any],
        *,
        n_ctx_seq: int,
        max_answer_tokens: int,
        max_input_tokens: int,
    ) -> None:
        """Raises TemplateUnusable."""
        self._vocabulary = vocabulary
        self._n_prompt_max = n_ctx_seq - max_answer_tokens
        self._n_ctx_seq = n_ctx_seq
        self._max_input_tokens = max_input_tokens
        self._literals: dict[tuple[tuple[str, ...], bool], list[list[int] | int]] = {}
        self._template = ChatTemplate(template, template_globals)
        self._between = vocabulary.tokenize(_BETWEEN, markers=False)

    def build(
        self, messages: Sequence[Message], *, refuse_long_input: bool = False, short_history: bool = False
    ) -> Prompt:
        """The prompt of a conversation; see `Request.messages` for its form.

        `short_history` leaves out more of the oldest turns than must be: down to a quarter of the room.

        Raises InputTooLong, SystemPromptTooLong, ContextFull or BadConversation.
        """
        system, turns = _split([_Part(m.role, self._content(m)) for m in messages])
        continued = turns[-1].role == "assistant"
        at = len(turns) - (2 if continued else 1)
        n_asked = len(turns[at].token_ids)
        limit = min(self._max_input_tokens, self._n_prompt_max - self._n_tokens(system, [_Part("user", [])]))
        if limit < min(_MIN_INPUT_TOKENS, n_asked):
            raise SystemPromptTooLong("the system prompt leaves no room for a question")
        if n_asked > limit and refuse_long_input:
            raise InputTooLong(f"{n_asked} tokens where {limit} fit")
        # Earlier questions too: one that was cut when it was asked is the same in every later prompt.
        turns = [_cut(turn, limit) for turn in turns]
        if continued:  # the answer may use the room that is kept for answers
            n_fixed = self._n_tokens(system, turns[at:]) - len(turns[at].token_ids)
            limit = min(limit, self._n_ctx_seq - 1 - n_fixed)
            if limit < min(_MIN_INPUT_TOKENS, n_asked):
                raise ContextFull("the answer fills the whole context")
            turns[at] = _cut(turns[at], limit)
        first = self._first_kept(system, turns, at)
        if short_history:
            quarter = self._n_prompt_max // 4
            starts = (i for i in range(first, at + 1) if turns[i].role == "user")
            first = next((s for s in starts if self._n_tokens(system, turns[s:]) <= quarter), at)
        parts, n_folded = self._joined(system, turns[first:])
        n_shared = self._n_before(len(parts) - len(turns[first:]), parts) + n_folded
        return Prompt(self._tokens(parts), n_shared, first, n_asked > limit)

    def _first_kept(self, system: list[_Part], turns: list[_Part], question: int) -> int:
        """Index of the oldest turn that stays, replayed turn by turn so that it moves rarely and the same way."""
        starts = [i for i in range(question + 1) if turns[i].role == "user"]
        if not self._template.takes_history:
            return starts[-1]
        first = 0
        for start in starts:
            end = start + 1 if start < question else len(turns)
            if self._n_tokens(system, turns[first:end]) <= self._n_prompt_max:
                continue
            half = self._n_prompt_max // 2
            later = (s for s in starts if first < s <= start)
            first = next((s for s in later if self._n_tokens(system, turns[s:end]) <= half), start)
        return first

    def _content(self, message: Message) -> list[int]:
        if message.token_ids is not None:
            return list(message.token_ids)
        return self._vocabulary.tokenize(message.text, markers=False)

    def _joined(self, system: list[_Part], turns: Sequence[_Part]) -> tuple[list[_Part], int]:
        """The messages as the template takes them, and how many tokens of the owner's stand before the first question.

        The owner's words are cut from nothing: they come in after the question was cut to its limit.
        """
        if self._template.takes_system:
            return [*system, *turns], 0
        folded = [token_id for part in system if part.token_ids for token_id in (*part.token_ids, *self._between)]
        first, *rest = turns
        return [_Part(first.role, [*folded, *first.token_ids]), *rest], len(folded)

    def _n_tokens(self, system: list[_Part], turns: Sequence[_Part]) -> int:
        parts, _ = self._joined(system, turns)
        skeleton = self._skeleton(tuple(p.role for p in parts), open_answer=parts[-1].role == "assistant")
        return sum(len(p.token_ids) for p in parts) + sum(len(p) for p in skeleton if not isinstance(p, int))

    def _n_before(self, index: int, parts: Sequence[_Part]) -> int:
        """Tokens before the content of message `index`."""
        n_tokens = 0
        for piece in self._skeleton(tuple(p.role for p in parts), open_answer=parts[-1].role == "assistant"):
            if piece == index:
                break
            n_tokens += len(parts[piece].token_ids) if isinstance(piece, int) else len(piece)
        return n_tokens

    def _tokens(self, parts: Sequence[_Part]) -> list[int]:
        token_ids: list[int] = []
        for piece in self._skeleton(tuple(p.role for p in parts), open_answer=parts[-1].role == "assistant"):
            token_ids += parts[piece].token_ids if isinstance(piece, int) else piece
        return token_ids

    def _skeleton(self, roles: tuple[str, ...], *, open_answer: bool) -> list[list[int] | int]:
        """The template's own tokens and, between them, the index of the message that belongs there.

        `open_answer` leaves the last message, an assistant's, open so that it can be continued.
        """
        key = (roles, open_answer)
        if key not in self._literals:
            if len(self._literals) > 256:
                self._literals.clear()
            shown = roles[:-1] if open_answer else roles
            try:
                text = self._template.render(shown)
            except TemplateRefuses as error:
                raise BadMessages(str(error)) from error
            parts: list[list[int] | int] = []
            at = 0
            for match in _PLACEHOLDER.finditer(text):
                parts += [self._vocabulary.tokenize(text[at : match.start()], markers=True), int(match[1])]
                at = match.end()
            parts.append(self._vocabulary.tokenize(text[at:], markers=True))
            if open_answer:
                parts.append(len(shown))
            if [p for p in parts if isinstance(p, int)] != list(range(len(roles))):
                raise BadMessages("the chat template leaves out or repeats a message")
            begin = list(self._vocabulary.begin_ids)
            if isinstance(parts[0], list) and parts[0][: len(begin)] != begin:
                parts[0] = begin + parts[0]
            self._literals[key] = parts
        return self._literals[key]


def _cut(part: _Part, limit: int) -> _Part:
    """A question cut to its limit; answers stay as they were generated."""
    return _Part(part.role, part.token_ids[:limit]) if part.role == "user" else part


def _split(parts: Sequence[_Part]) -> tuple[list[_Part], list[_Part]]:
    """System messages at the front, then turns that start with a user's; raises BadConversation for any other form."""
    n_system = next((i for i, p in enumerate(parts) if p.role != "system"), len(parts))
    turns = list(parts[n_system:])
    if not turns or turns[0].role != "user":
        raise BadMessages("a conversation is system messages, then turns that start with the user's")
    if turns[-1].role == "assistant" and turns[-2].role != "user":
        raise BadMessages("an answer to be continued follows the user's message")
    if turns[-1].role == "system":
        raise BadMessages("a conversation ends with the user's message or an answer to be continued")
    return list(parts[:n_system]), turns
