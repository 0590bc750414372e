"""What the engine needs of a model: evaluate rows of tokens, and know its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from appliance.base.errors import ApplianceError
from appliance.engine.request import SamplingParams

Logits = NDArray[np.float32]
"""(n_rows, n_vocab), writable, valid until the next `decode`."""

N_BATCH = 512
"""Most rows of one step: what the scheduler may plan and every backend has to take."""


class NoRoom(ApplianceError):
    """The KV cells cannot take this batch: give somebody up, trying again cannot help."""


class DecodeFailed(ApplianceError):
    """The evaluation failed; the KV state of every slot in the batch is unknown."""


@dataclass(frozen=True)
class Rows:
    """Consecutive tokens of one slot to evaluate."""

    slot: int
    first_position: int
    token_ids: Sequence[int]
    wants_logits: bool
    """Logits of the last of them."""


class Vocabulary(Protocol):
    """Tokens of one model. Every method is pure."""

    n_vocab: int
    begin_ids: tuple[int, ...]
    """What every prompt starts with, where the model asks for it."""
    marker_texts: tuple[str, ...]
    """Texts of the turn and end markers: an answer that spells one out ends there."""

    def tokenize(self, text: str, *, markers: bool) -> list[int]:
        """`markers` reads turn and end markers as such: only for text of the chat template."""

    def piece(self, token_id: int) -> bytes:
        """Bytes of one token; empty for markers."""

    def is_end(self, token_id: int) -> bool:
        """Whether the token ends an answer."""


class Backend(Protocol):
    """Owned by one thread. Slots are 0 .. n_slots - 1; the ones in use should be the lowest, without holes."""

    model_name: str
    fingerprint: str
    """Differs whenever a saved KV state of another backend would be wrong here."""
    chat_template: str
    template_globals: dict[str, Any]
    """bos_token, eos_token."""
    sampling: SamplingParams
    """The model's own way of drawing tokens, every field set."""
    instructions: str
    """The processor's instructions that its kernels use, for the log."""
    kernels: str
    """Their name."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens."""

    def decode(self, batch: Sequence[Rows]) -> Logits:
        """Evaluate and return a row of logits for each `Rows` that wants them, in order.

        Raises NoRoom with the KV state as it was, or DecodeFailed.
        """

    def held(self, slot: int) -> list[int]:
        """The tokens whose KV state the slot holds, position 0 first."""

    def truncate(self, slot: int, n_tokens: int) -> None:
        """Drop the KV state from position `n_tokens` on."""

    def save(self, slot: int) -> NDArray[np.uint8]:
        """The slot's KV state, for `restore`."""

    def restore(self, slot: int, data: NDArray[np.uint8], token_ids: Sequence[int]) -> bool:
        """Fill an empty slot with a saved state of these tokens; False, and still empty, when it does not fit."""

    def move(self, source: int, target: int) -> None:
        """Carry a slot's KV state to an empty slot; the source is empty afterwards."""

    def close(self) -> None:
        """Free the model; nothing may be called afterwards."""
