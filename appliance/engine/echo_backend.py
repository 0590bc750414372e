"""A backend that repeats the last message, one byte a token: for the scheduler's logic and the page's edge cases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.engine.backend import Logits, Rows
from appliance.engine.request import SamplingParams

_BEGIN, _END = 256, 257


class ByteVocabulary:
    """256 bytes and two markers."""

    n_vocab = 258
    begin_ids: tuple[int, ...] = ()
    marker_texts: tuple[str, ...] = ()

    def tokenize(self, text: str, *, markers: bool) -> list[int]:
        """See `Vocabulary`."""
        data = list(text.encode("utf-8", errors="ignore"))
        if not markers:
            return data
        return [{2: _BEGIN, 3: _END}.get(byte, byte) for byte in data]

    def piece(self, token_id: int) -> bytes:
        """See `Vocabulary`."""
        return bytes([token_id]) if token_id < 256 else b""

    def is_end(self, token_id: int) -> bool:
        """See `Vocabulary`."""
        return token_id == _END


class EchoBackend:
    """Answers with the text between the last two markers. Owned by one thread."""

    vocabulary = ByteVocabulary()
    model_name = "Echo"
    fingerprint = "echo"
    instructions = ""
    kernels = ""
    chat_template = "{% for m in messages %}\x02{{ m['role'][0] }}{{ m['content'] }}\x03{% endfor %}\x02a"
    sampling = SamplingParams(0.0, 1, 1.0, 0.0, 1.0)

    def __init__(self, n_slots: int, step_s: float = 0.0) -> None:
        self.template_globals: dict[str, Any] = {}
        self._held: list[list[int]] = [[] for _ in range(n_slots)]
        self._step_s = step_s

    def decode(self, batch: Sequence[Rows]) -> Logits:
        """See `Backend`."""
        if self._step_s:
            time.sleep(self._step_s)
        for rows in batch:
            if rows.first_position != len(self._held[rows.slot]):
                raise AssertionError(
                    f"slot {rows.slot}: row at {rows.first_position}, held {len(self._held[rows.slot])}"
                )
            self._held[rows.slot] += rows.token_ids
        asked = [self._next(self._held[rows.slot]) for rows in batch if rows.wants_logits]
        logits = np.zeros((len(asked), self.vocabulary.n_vocab), dtype=np.float32)
        logits[np.arange(len(asked)), asked] = 10.0
        return logits

    def held(self, slot: int) -> list[int]:
        """See `Backend`."""
        return self._held[slot]

    def truncate(self, slot: int, n_tokens: int) -> None:
        """See `Backend`."""
        del self._held[slot][n_tokens:]

    def save(self, slot: int) -> NDArray[np.uint8]:
        """See `Backend`: the tokens themselves."""
        return np.array(self._held[slot], dtype=np.int32).view(np.uint8)

    def restore(self, slot: int, data: NDArray[np.uint8], token_ids: Sequence[int]) -> bool:
        """See `Backend`. What the state says is what the slot holds, whatever the caller believes."""
        self._held[slot] = data.view(np.int32).tolist()
        return True

    def move(self, source: int, target: int) -> None:
        """See `Backend`."""
        assert not self._held[target]
        self._held[target], self._held[source] = self._held[source], []

    def close(self) -> None:
        """See `Backend`."""

    def _next(self, held: list[int]) -> int:
        if held.count(_BEGIN) < 2:  # no question: a row that only fills the batch up
            return _END
        begin = len(held) - 1 - held[::-1].index(_BEGIN)
        asked_at = begin - 1 - held[:begin][::-1].index(_BEGIN)
        asked, answered = held[asked_at + 2 : begin - 1], held[begin + 2 :]
        return asked[len(answered)] if len(answered) < len(asked) else _END
