"""What a person wants of their answers: instructions of their own, how freely words are drawn, how long answers are.

They live in the person's browser and come with every question, checked and bounded here; nothing of them is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, ValidationError

from appliance.base.errors import InputTooLong, Refused
from appliance.chat import guard
from appliance.engine.request import SamplingParams

Creativity = Literal["", "exact", "calm", "lively"]
Length = Literal["", "short", "medium"]

CREATIVITIES: Final[tuple[Creativity, ...]] = get_args(Creativity)
LENGTHS: Final[tuple[Length, ...]] = get_args(Length)
"""The first of each leaves it to the owner."""
MAX_INSTRUCTION_CHARS: Final = 300
"""Code points. They take room from the conversation, so they are short."""

_TEMPERATURES: Final[Mapping[str, float]] = {"exact": 0.0, "calm": 0.4, "lively": 1.0}
_SHARES: Final[Mapping[str, float]] = {"short": 0.35, "medium": 0.7}
"""Of the owner's longest answer. The sentence makes the answer end by itself, the share where it does not."""
_SENTENCES: Final[Mapping[str, str]] = {
    "short": "Answer in at most three sentences.",
    "medium": "Answer in at most two short paragraphs.",
}


class BadWishes(Refused):
    """What came with the question are no wishes of this page."""

    code = "bad_wishes"


class Wishes(BaseModel):
    """What is empty is left to the owner."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    instructions: str = ""
    creativity: Creativity = ""
    length: Length = ""

    def system_prompt(self, owners: str) -> str:
        """The owner's words first: they hold for everybody.

        What is empty is sent as well: without any, some templates put in words of the model's maker.
        """
        return "\n\n".join(filter(None, (owners, self.instructions, _SENTENCES.get(self.length))))

    def max_tokens(self, longest: int) -> int:
        """Of an answer, never more than the owner's `longest`."""
        return max(1, int(longest * _SHARES.get(self.length, 1)))

    @property
    def sampling(self) -> SamplingParams:
        """How words are drawn; what is not set is the owner's or the model's own."""
        return SamplingParams(temperature=_TEMPERATURES.get(self.creativity))


NO_WISHES: Final = Wishes()


def take(header: str) -> Wishes:
    """The wishes of a header: JSON, percent-encoded because a header carries no Chinese.

    Raises:
        BadWishes: it is something else, or the instructions are too long.
    """
    try:
        wishes = Wishes.model_validate_json(unquote(header, errors="strict")) if header else NO_WISHES
    except (ValidationError, UnicodeError) as error:
        raise BadWishes("these are no wishes of the page") from error
    try:
        instructions = guard.refuse_long(wishes.instructions, MAX_INSTRUCTION_CHARS).strip()
    except InputTooLong as error:
        raise BadWishes("the instructions are too long") from error
    return wishes.model_copy(update={"instructions": instructions})
