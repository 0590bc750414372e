"""When a reader's page is painted again: often enough to look alive, seldom enough to cost little.

Pure: knows no clock and no loop.
"""

from __future__ import annotations

import re

FASTEST_S = 0.1
"""No reader is sent more than ten updates a second."""
LATEST_S = 0.3
"""The longest a word waits with up to N_EASY streams..."""
LATEST_BUSY_S = 0.6
"""...and with N_BUSY or more; in between it grows in a line."""
N_EASY = 8
N_BUSY = 16

_PUNCTUATION = re.compile(r"[,.;:!?，。；：！？、…\n]")


def latest_s(n_streams: int) -> float:
    """Seconds a pending word may wait while `n_streams` answers are being written."""
    share = min(max(n_streams - N_EASY, 0), N_BUSY - N_EASY) / (N_BUSY - N_EASY)
    return LATEST_S + share * (LATEST_BUSY_S - LATEST_S)


def min_tokens(n_streams: int) -> int:
    """Tokens worth a repaint before that."""
    return 2 if n_streams <= N_EASY else 3


class Pacer:
    """One reader's painting. Seconds are on whatever clock the caller passes."""

    def __init__(self) -> None:
        self._n_pending = 0
        self._punctuation = False
        self._painted_at: float | None = None

    def add(self, text: str, n_tokens: int) -> None:
        """Text has come."""
        self._n_pending += n_tokens if text else 0
        self._punctuation = self._punctuation or _PUNCTUATION.search(text) is not None

    @property
    def has_pending(self) -> bool:
        """Whether there is text that has not been painted."""
        return self._n_pending > 0

    def is_eager(self, n_streams: int) -> bool:
        """Whether what is pending is worth more than the latest moment: first text, or a clause that ends."""
        if not self._n_pending:
            return False
        return self._painted_at is None or (self._punctuation and self._n_pending >= min_tokens(n_streams))

    def due_in_s(self, now: float, n_streams: int) -> float | None:
        """Seconds until the next repaint, 0 for now; None while nothing is pending."""
        if not self._n_pending:
            return None
        if self._painted_at is None:
            return 0.0
        wait = FASTEST_S if self.is_eager(n_streams) else latest_s(n_streams)
        return max(0.0, self._painted_at + wait - now)

    def painted(self, now: float) -> None:
        """Everything pending is shown."""
        self._n_pending = 0
        self._punctuation = False
        self._painted_at = now
