"""Bytes of tokens to text for a reader: whole characters only, and never a part of a stop string."""

from __future__ import annotations

import codecs


class Detokenizer:
    """One answer's text. Bytes that no UTF-8 text can hold are dropped: a box tells the reader nothing."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self.stopped = False

    def resume(self, tail: bytes) -> None:
        """Take up an answer that is continued: half a character at the end of `tail` awaits its other half."""
        self._decoder.decode(tail)

    def feed(self, piece: bytes) -> str:
        """Text that is certain after this piece; sets `stopped` when a stop string is complete."""
        if self.stopped:
            return ""
        self._held += self._decoder.decode(piece)
        found = [at for at in (self._held.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_overlap(self._held, s) for s in self._stop), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        """What was held back for a stop string that never came; half a character is dropped."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning, but not the whole, of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
