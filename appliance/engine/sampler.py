"""Draw the next token of every row of a batch, with the distribution of llama.cpp's sampler chain.

The order is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, draw. The k best of 150,000 candidates
are found without sorting them: the k-th largest of the maxima of 128-wide blocks is a lower bound of the k-th
largest value, so only blocks that reach it are looked at (measured: 0.07 ms a row against 0.85 ms for the chain).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from appliance.engine.backend import Logits
from appliance.engine.request import SamplingParams

_BLOCK = 128
_PENALTY_LAST_N = 64  # llama.cpp's default window


class TokenSampler:
    """One sequence's sampling state: parameters (every field set), random numbers, recent tokens."""

    def __init__(self, params: SamplingParams) -> None:
        values = (params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty)
        if any(v is None for v in values):
            raise ValueError(f"sampling parameters must all be set: {params}")
        self.temperature = float(params.temperature or 0.0)
        self.top_k = int(params.top_k or 0)
        self.top_p = 1.0 if params.top_p is None else float(params.top_p)
        self.min_p = float(params.min_p or 0.0)
        self.repetition_penalty = float(params.repetition_penalty or 1.0)
        # Clients send any whole number, -1 too; numpy takes none below zero.
        self._random = np.random.default_rng(None if params.seed is None else params.seed % 2**64)
        self._recent: deque[int] = deque(maxlen=_PENALTY_LAST_N)

    def accept(self, token_ids: Sequence[int]) -> None:
        """Note tokens of the sequence, prompt or answer, for the repetition penalty."""
        self._recent.extend(token_ids)

    def penalize(self, row: NDArray[np.float32]) -> None:
        """Apply the repetition penalty to one row of logits, in place."""
        if self.repetition_penalty == 1.0 or not self._recent:
            return
        ids = np.fromiter(set(self._recent), dtype=np.intp)
        values = row[ids]
        row[ids] = np.where(values <= 0, values * self.repetition_penalty, values / self.repetition_penalty)

    def draw(self, ids: NDArray[np.intp], logits: NDArray[np.float32]) -> int:
        """Draw from candidates in descending order of logit."""
        if self.temperature <= 0:
            return int(ids[0])
        scores = logits.astype(np.float64)
        n_keep = len(scores)
        if self.top_p < 1.0:
            mass = np.cumsum(_softmax(scores))
            n_keep = min(n_keep, int(np.searchsorted(mass, self.top_p)) + 1)
        if self.min_p > 0.0:
            n_keep = min(n_keep, max(1, int(np.count_nonzero(scores >= scores[0] + np.log(self.min_p)))))
        mass = np.cumsum(_softmax(scores[:n_keep] / self.temperature))
        chosen = int(np.searchsorted(mass, self._random.random() * mass[-1], side="right"))
        return int(ids[min(chosen, n_keep - 1)])


def sample(samplers: Sequence[TokenSampler], logits: Logits) -> list[int]:
    """One token a row. `logits` is (len(samplers), n_vocab) and is changed by the penalty."""
    for sampler, row in zip(samplers, logits, strict=True):
        sampler.penalize(row)
    blocks = _in_blocks(logits)
    tokens = []
    for sampler, row, row_maxima in zip(samplers, blocks, blocks.max(axis=1), strict=True):
        k = 1 if sampler.temperature <= 0 else sampler.top_k
        tokens.append(sampler.draw(*_best(row, row_maxima, k)))
    return tokens


def _in_blocks(logits: Logits) -> NDArray[np.float32]:
    """(n_rows, n_vocab) as (n_rows, <= 128, n_blocks): block b holds the ids b, b + n_blocks, b + 2 n_blocks...

    The maxima of such columns are found without a loop inside a block, five times as fast as of neighbours. A
    vocabulary that does not divide is filled up with candidates nobody draws.
    """
    n_rows, n_vocab = logits.shape
    n_in_block = next((n for n in range(_BLOCK, _BLOCK // 2, -1) if n_vocab % n == 0), _BLOCK)
    if missing := -n_vocab % n_in_block:
        logits = np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf)
    return logits.reshape(n_rows, n_in_block, -1)


def _best(
    row: NDArray[np.float32], maxima: NDArray[np.float32], k: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Ids and logits of the k best candidates, best first; k = 0 takes all. `row` is in blocks, `maxima` theirs."""
    n_blocks = len(maxima)
    if k == 1:
        block = int(np.argmax(maxima))
        best = int(np.argmax(row[:, block]))
        return np.array([best * n_blocks + block], dtype=np.intp), row[best : best + 1, block]
    if 0 < k < n_blocks:
        threshold = np.partition(maxima, n_blocks - k)[n_blocks - k]
        blocks = np.flatnonzero(maxima >= threshold)
        near = row[:, blocks]
        at, column = np.nonzero(near >= threshold)
        ids, values = at * n_blocks + blocks[column], near[at, column]
    else:
        values = row.ravel()
        ids = np.flatnonzero(values > -np.inf)
        values = values[ids]
    order = np.argsort(-values, kind="stable")[: k or None]
    return ids[order], values[order]


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights
