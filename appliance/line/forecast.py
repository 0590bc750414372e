"""How long somebody waits, from what this PC was measured to do. Pure: no clock, no input or output, times in seconds.

Two things are learned: how many tokens answers have, and how long a slot is held for each token of them while so and so
many slots are held (reading the prompts and handing on the slots included). What a running answer still needs is drawn
from the lengths of those that were longer than it is; the line is then played forward, slot by slot.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from appliance.engine.request import Running

_N_LENGTHS = 200
"""Answers whose length is remembered."""
_PRIOR = (0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Before there are any: shares of the longest answer, counted as so many answers."""
_PRIOR_SLOT_S, _PRIOR_SLOTS = 0.13, 16
"""Before anything was measured: a slot is held so long for each token while so many are (0.5B model, two old cores)."""
_FADING = 0.975
"""What an earlier measurement of the speed counts against the next one."""
_MORE_SLOTS = 0.7
"""From n to m held slots each token takes about (m / n) to this power longer: a batch shares the reading of weights."""
_GOLDEN = 0.6180339887498949
_N_PLAYED = 3
_FIRST_TOKEN_S = 0.5
"""Before anything was measured: from the slot to the first word."""


class Forecast:
    """Owned by the event loop's thread."""

    def __init__(self, n_slots: int, max_answer_tokens: int) -> None:
        self._n_slots = n_slots
        self._max_tokens = max_answer_tokens
        self._lengths = deque((max(1, int(share * max_answer_tokens)) for share in _PRIOR), maxlen=_N_LENGTHS)
        self._sorted: list[int] | None = None
        self._speed: dict[int, tuple[float, float]] = {}
        """Held slots to (seconds of slots held, tokens), both fading."""
        self.first_token_s = _FIRST_TOKEN_S
        """From the slot to the first token, of late."""

    def note_answer(self, n_tokens: int, first_token_s: float) -> None:
        """An answer that held a slot has ended with so many tokens, however it ended."""
        self._lengths.append(n_tokens)
        self._sorted = None
        if n_tokens:
            self.first_token_s = 0.9 * self.first_token_s + 0.1 * first_token_s

    def note_speed(self, n_held: int, n_tokens: int, seconds: float) -> None:
        """So many slots were held for so long, and gave so many tokens together."""
        if n_held > 0 and seconds > 0:
            slot_s, known = self._speed.get(n_held, (0.0, 0.0))
            self._speed[n_held] = (slot_s * _FADING + n_held * seconds, known * _FADING + n_tokens)

    def slot_s(self, n_held: int) -> float:
        """Seconds a slot is held for each token while `n_held` are."""
        measured = [n for n, (_, n_tokens) in self._speed.items() if n_tokens >= 1]
        if not measured:
            return float(_PRIOR_SLOT_S * (n_held / _PRIOR_SLOTS) ** _MORE_SLOTS)
        nearest = min(measured, key=lambda n: abs(n - n_held))
        slot_s, n_tokens = self._speed[nearest]
        return float(slot_s / n_tokens * (n_held / nearest) ** _MORE_SLOTS)

    def turns(self, running: Sequence[Running], n: int, max_tokens: int | None = None) -> list[float]:
        """When the next `n` questions in line get a slot, in seconds from now.

        What is drawn for an answer is drawn by its number: it stays the same while the line moves.

        Args:
            max_tokens: the longest answer those in line may have; not set: the longest there is.
        """
        first = max((answer.number for answer in running), default=0) + 1
        longest = max_tokens or self._max_tokens
        played = [self._play(running, n, first, longest, shift / _N_PLAYED) for shift in range(_N_PLAYED)]
        return [sum(times) / _N_PLAYED for times in zip(*played, strict=True)]

    def _play(self, running: Sequence[Running], n: int, first: int, longest: int, shift: float) -> list[float]:
        slot_s = self.slot_s(self._n_slots)
        ends = [0.0] * self._n_slots
        for answer in running:
            rest = self._rest(answer.n_decoded, _share(answer.number, shift))
            heapq.heapreplace(ends, ends[0] + rest * slot_s)
        times = []
        for number in range(first, first + n):
            times.append(ends[0])
            length = min(longest, self._rest(0, _share(number, shift)))
            heapq.heapreplace(ends, ends[0] + length * slot_s)
        return times

    def _rest(self, n_tokens: int, share: float) -> float:
        """Tokens an answer of so many still gets: at `share` of the known answers that were longer."""
        if self._sorted is None:
            self._sorted = sorted(self._lengths)
        longer = bisect_right(self._sorted, n_tokens)
        if longer == len(self._sorted):
            return max(1.0, (self._max_tokens - n_tokens) / 2)
        return self._sorted[longer + int(share * (len(self._sorted) - longer))] - n_tokens


def _share(number: int, shift: float) -> float:
    """Evenly spread over 0 to 1 by consecutive numbers."""
    return (number * _GOLDEN + shift) % 1.0
