"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from appliance.engine.detokenizer import Detokenizer
from appliance.engine.prefix_cache import Owner
from appliance.engine.request import Request, Timings
from appliance.engine.sampler import TokenSampler


@dataclass(eq=False)
class Sequence:
    """Mutable, owned by the engine's thread.

    `token_ids` is the prompt followed by the answer so far; the first `n_past` of them are in the KV cells of `slot`.
    While the answer runs exactly one token, the last drawn, is not in there yet.
    """

    request: Request
    token_ids: list[int]
    n_prompt: int
    max_tokens: int
    """Longest answer that the request and the context allow."""
    sampler: TokenSampler
    detokenizer: Detokenizer
    arrived_s: float
    """Engine clock, as the next three."""
    placed_s: float | None = None
    """When it got its first slot."""
    first_token_s: float | None = None
    last_token_s: float = 0.0
    owner: Owner | None = None
    """Whose KV state it is; None keeps none."""
    shared_ids: tuple[int, ...] = ()
    """The beginning of the prompt that is the same for everybody: the system prompt."""
    in_conversation: bool = False
    """Its person had an answer a moment ago."""
    n_reusable: int = 0
    """Prompt tokens of a parked state that need not be computed, as known on arrival; 0 once it had a slot."""
    n_past: int = 0
    n_cached: int = 0
    slot: int | None = None
    placed: int = 0
    """Counts up with every request that gets a slot."""
    computes_shared: bool = False
    """It is the one that computes `shared_ids` for all who wait for them."""
    saved: NDArray[np.uint8] | None = None
    """KV state of the first `n_saved` tokens while it was set aside for somebody without a share."""
    n_saved: int = 0
    unsent_ids: list[int] = field(default_factory=list)
    """Drawn tokens whose text is still held back."""

    @property
    def request_id(self) -> str:
        return self.request.request_id

    def timings(self) -> Timings:
        """What took how long, once it is over."""
        if self.placed_s is None:
            return Timings()
        waited_s = self.placed_s - self.arrived_s
        if self.first_token_s is None:
            return Timings(waited_s)
        return Timings(waited_s, self.first_token_s - self.placed_s, self.last_token_s - self.first_token_s)

    @property
    def n_pending(self) -> int:
        """Tokens that still have to be evaluated before one can be drawn."""
        return len(self.token_ids) - self.n_past

    @property
    def n_chunk(self) -> int:
        """Tokens that may be evaluated in one go: only up to the end of a system prompt that is to be kept."""
        return len(self.shared_ids) - self.n_past if self.computes_shared else self.n_pending

    @property
    def n_to_compute(self) -> int:
        """Prompt tokens that are left to compute, as far as is known."""
        return max(0, self.n_prompt - max(self.n_past, self.n_reusable, self.n_saved))

    @property
    def n_decoded(self) -> int:
        """Tokens of the answer so far."""
        return len(self.token_ids) - self.n_prompt

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the token drawn last is still to be evaluated."""
        return self.n_past < self.n_prompt or self.n_pending > 1
