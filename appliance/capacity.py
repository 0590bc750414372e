"""How many people a measured speed does for. Pure: speeds in tokens a second, times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

COMFORTABLE_PER_S: Final = 4.0
"""Tokens a second for each reader: about as fast as one reads."""
COMFORTABLE_TTFT_S: Final = 3.0
"""How long nine of ten may wait for the first word."""
_PROMPT_TOKENS: Final = 40
"""What is to be read of a usual question before its answer can begin."""


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
        """What each of so many gets at once: together they get more than one does, by a power of their number."""
        if n_slots <= 1 or n_people <= 1:
            return self.one / max(1, n_people)
        growth = math.log(max(self.many / self.one, 1.0)) / math.log(n_slots)
        return float(self.one * min(n_people, n_slots) ** growth / n_people)

    def comfortable(self, n_slots: int) -> int:
        """The most people who can ask at once and all be served comfortably; never more than there are slots."""
        together = int(COMFORTABLE_TTFT_S * self.prefill / _PROMPT_TOKENS)
        able = [n for n in range(1, n_slots + 1) if self.each(n, n_slots) >= COMFORTABLE_PER_S and n <= together]
        return max(able, default=0)
