"""How many people a measured speed does for. Pure: speeds in tokens a second, times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from appliance.engine.config import USUAL_ANSWER_TOKENS, USUAL_PROMPT_TOKENS

COMFORTABLE_PER_S: Final = 4.0
"""Tokens a second for each reader: about as fast as one reads."""
COMFORTABLE_TTFT_S: Final = 3.0
"""How long nine of ten may wait for the first word."""


def is_comfortable(per_s: float, ttft_s: float) -> bool:
    """Whether somebody who gets so many tokens a second, the first of them after so long, is served comfortably."""
    return per_s >= COMFORTABLE_PER_S and ttft_s < COMFORTABLE_TTFT_S


@dataclass(frozen=True)
class Speed:
    """Of one model on this PC."""

    one: float
    """Decoded for one reader alone."""
    many: float
    """For all slots at work together."""
    prefill: float
    """Read of questions."""

    def each(self, n_people: int, n_slots: int) -> float:
        """What each of so many reads a second: others' answers are written and others' questions read meanwhile."""
        return USUAL_ANSWER_TOKENS / self._answer_s(n_people, n_slots)

    def first_word_s(self, n_people: int, n_slots: int) -> float:
        """Until nine of ten see a first word: their own question, and some of the others' before it."""
        others = self._others_s(n_people) / self._answer_s(n_people, n_slots)
        return USUAL_PROMPT_TOKENS / self.prefill * (1 + 2 * others / (1 - others))

    def comfortable(self, n_slots: int) -> int:
        """The most people who can ask at once and all be served comfortably; never more than there are slots."""
        able = [
            n for n in range(1, n_slots + 1) if is_comfortable(self.each(n, n_slots), self.first_word_s(n, n_slots))
        ]
        return max(able, default=0)

    def _answer_s(self, n_people: int, n_slots: int) -> float:
        """From the first to the last word of an answer while everybody asks again and again."""
        # Written together they are faster than one alone, by a power of their number.
        growth = math.log(max(self.many / self.one, 1.0)) / math.log(n_slots) if n_slots > 1 else 0.0
        all_per_s = float(self.one * min(n_people, n_slots) ** growth)
        return USUAL_ANSWER_TOKENS * n_people / all_per_s + self._others_s(n_people)

    def _others_s(self, n_people: int) -> float:
        """Of that time, what goes to reading the others' next questions: one each."""
        return (n_people - 1) * USUAL_PROMPT_TOKENS / self.prefill
