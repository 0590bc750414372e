"""What a step costs on this computer, learned from the steps themselves."""

from __future__ import annotations

_WEIGHT = 0.2
"""Of the newest step in the running means."""
_FIRST_GUESS_S = 0.001
"""Of a prompt row, until the first one has been seen: too large a step then delays nobody."""

_CLEARLY = 1.5
_MANY_ROWS = 64
"""Fewer prompt rows teach only where they make the step that much longer: what its answers cost is a guess too."""


class StepCost:
    """Running means in seconds: one for each number of decoding rows, one for a prompt row."""

    def __init__(self) -> None:
        self._decode_s: dict[int, float] = {}
        self.prompt_row_s = _FIRST_GUESS_S
        self._has_seen_prompts = False
        self.step_s = 0.0
        """A step as they have been lately, whatever is in it."""

    def note(self, n_decoding: int, n_prompt: int, elapsed_s: float) -> None:
        """Learn from one step of `n_decoding` rows of running answers and `n_prompt` rows of prompts."""
        self.step_s = _mean(self.step_s or elapsed_s, elapsed_s)
        if n_prompt == 0:
            self._decode_s[n_decoding] = _mean(self._decode_s.get(n_decoding, elapsed_s), elapsed_s)
        elif n_prompt >= _MANY_ROWS or (n_prompt >= 8 and elapsed_s >= _CLEARLY * self.decode_s(n_decoding)):
            row_s = max(1e-5, (elapsed_s - self.decode_s(n_decoding)) / n_prompt)
            self.prompt_row_s = _mean(self.prompt_row_s, row_s) if self._has_seen_prompts else row_s
            self._has_seen_prompts = True

    def decode_s(self, n_decoding: int) -> float:
        """Expected time of a step of decoding rows only, from the nearest number seen."""
        if n_decoding == 0 or not self._decode_s:
            return 0.0
        nearest = min(self._decode_s, key=lambda n: abs(n - n_decoding))
        return self._decode_s[nearest] * (n_decoding / nearest if nearest < n_decoding else 1.0)

    def prompt_rows_within(self, seconds: float, n_decoding: int) -> int:
        """How many prompt rows fit beside the decoding rows into a step of that length."""
        return int((seconds - self.decode_s(n_decoding)) / self.prompt_row_s)


def _mean(old: float, new: float) -> float:
    return old + _WEIGHT * (new - old)
