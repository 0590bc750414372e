"""How fast a model file is here, and how far its answers are from those of the file it was made of.

One pass serves both: pieces of known text, one in every slot, are read on token by token as if they were being
written, and the logits of every step are compared with the reference file's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.engine.backend import N_BATCH, Backend, Logits, Rows, Vocabulary
from appliance.engine.config import EngineConfig

_N_BEFORE = 32
"""Tokens every piece begins with, read as a prompt."""
_N_ROWS = 512
"""Compared in one pass: pieces times tokens."""
_N_STEPS_MAX = 64
_N_SINGLE = 16
"""Steps of one stream alone."""


@dataclass(frozen=True)
class Part:
    """Which of the passes over the texts this is: each takes other pieces of them."""

    number: int
    n_parts: int


@dataclass(frozen=True)
class Measurement:
    """One pass. The arrays have an entry for every token compared, in the same order for every file."""

    prefill_per_s: float
    many_per_s: float
    """Decoded tokens a second with every slot at work."""
    one_per_s: float
    """The same with one slot alone."""
    text: NDArray[np.int8]
    """Number of the text the token is from."""
    surprise: NDArray[np.float32]
    """Nats: minus the log of the probability given to the token that comes next."""
    divergence: NDArray[np.float32]
    """Nats: KL(reference || this file) of the distributions."""
    agrees: NDArray[np.bool_]
    """Whether the likeliest token is the reference's."""


def n_steps(n_slots: int) -> int:
    """Tokens read on in each slot."""
    return max(8, min(_N_STEPS_MAX, _N_ROWS // n_slots))


def reference_bytes(n_slots: int, n_vocab: int) -> int:
    """Size of the reference's file of log-probabilities."""
    return n_steps(n_slots) * n_slots * n_vocab * 2


def measuring_config(config: EngineConfig, model_path: Path) -> EngineConfig:
    """The engine's own configuration, with room for the pieces only."""
    return replace(config, model_path=model_path, n_ctx_seq=_N_BEFORE + _N_STEPS_MAX + 32, mlock=False)


def measure(config: EngineConfig, texts: Sequence[str], part: Part, reference: Path, is_reference: bool) -> Measurement:
    """Load the file and make one pass. `reference` is written by the reference's pass and read by the others.

    Raises ModelFileError when the file does not load, DecodeFailed or NoRoom, OSError of the reference's file.
    """
    from appliance.engine.llama_backend import LlamaBackend

    backend = LlamaBackend(config)
    try:
        return measure_backend(backend, config.n_slots, texts, part, reference, is_reference)
    finally:
        backend.close()


def measure_backend(
    backend: Backend, n_slots: int, texts: Sequence[str], part: Part, reference: Path, is_reference: bool
) -> Measurement:
    """The same with a backend that is loaded."""
    steps = n_steps(n_slots)
    numbers, pieces = _pieces(backend.vocabulary, texts, n_slots, _N_BEFORE + steps + 1, part)
    shape = (steps, n_slots, backend.vocabulary.n_vocab)
    # Half precision of log-probabilities: exact to 0.001 where the likely tokens are, half the disk and the memory.
    kept: Any = np.lib.format.open_memmap(reference, mode="w+" if is_reference else "r", dtype=np.float16, shape=shape)
    if kept.shape != shape:
        raise ValueError(f"the reference has the shape {kept.shape}, not {shape}")
    _warm_up(backend, pieces[0])
    prefill_s = _prefill(backend, pieces)
    step_s: list[float] = []
    compared: list[_Compared] = []
    for step in range(steps):
        position = _N_BEFORE + step
        logits, took_s = _timed(backend, [_row(slot, position, piece) for slot, piece in enumerate(pieces)])
        step_s.append(took_s)
        log_p = _log_softmax(logits)
        if is_reference:
            kept[step] = log_p
        targets = [piece[position + 1] for piece in pieces]
        compared.append(_compare(log_p, np.asarray(kept[step], dtype=np.float32), targets))
    single_s = _single(backend, pieces[0])
    if is_reference:
        kept.flush()
    return Measurement(
        prefill_per_s=n_slots * _N_BEFORE / prefill_s,
        many_per_s=n_slots / float(np.median(step_s)),
        one_per_s=1 / single_s,
        text=np.tile(np.array(numbers, dtype=np.int8), steps),
        surprise=np.concatenate([one.surprise for one in compared]),
        divergence=np.concatenate([one.divergence for one in compared]),
        agrees=np.concatenate([one.agrees for one in compared]),
    )


@dataclass(frozen=True)
class _Compared:
    surprise: NDArray[np.float32]
    divergence: NDArray[np.float32]
    agrees: NDArray[np.bool_]


def _pieces(
    vocabulary: Vocabulary, texts: Sequence[str], n_slots: int, length: int, part: Part
) -> tuple[list[int], list[list[int]]]:
    """The text's number and the tokens of one piece for every slot, spread evenly over the texts."""
    tokens = [vocabulary.tokenize(text, markers=False) for text in texts]
    begin = list(vocabulary.begin_ids)
    n_own = length - len(begin)
    n_pieces = n_slots * part.n_parts
    numbers, pieces = [], []
    for slot in range(n_slots):
        place = slot * part.n_parts + part.number
        number = (slot + part.number) % len(texts)
        spare = len(tokens[number]) - n_own
        if spare < 0:
            raise ValueError(f"a text of {len(tokens[number])} tokens is too short for pieces of {n_own}")
        first = spare * place // max(1, n_pieces - 1)
        numbers.append(number)
        pieces.append(begin + tokens[number][first : first + n_own])
    return numbers, pieces


def _warm_up(backend: Backend, piece: list[int]) -> None:
    """Every weight is read once, so that the disk is not what is measured."""
    backend.decode([Rows(0, 0, piece[:_N_BEFORE], wants_logits=True)])
    backend.truncate(0, 0)


def _prefill(backend: Backend, pieces: list[list[int]]) -> float:
    """Seconds for the beginnings of all pieces, in steps as large as the scheduler's largest."""
    n_together = N_BATCH // _N_BEFORE
    total_s = 0.0
    for first in range(0, len(pieces), n_together):
        together = range(first, min(first + n_together, len(pieces)))
        batch = [Rows(slot, 0, pieces[slot][:_N_BEFORE], wants_logits=True) for slot in together]
        total_s += _timed(backend, batch)[1]
    return total_s


def _single(backend: Backend, piece: list[int]) -> float:
    """Median seconds of a step of one stream; afterwards slot 0 holds the beginning of its piece only."""
    backend.truncate(0, _N_BEFORE)
    steps = min(_N_SINGLE, len(piece) - _N_BEFORE)
    times_s = [_timed(backend, [_row(0, _N_BEFORE + i, piece)])[1] for i in range(steps)]
    backend.truncate(0, _N_BEFORE)
    return float(np.median(times_s))


def _row(slot: int, position: int, piece: list[int]) -> Rows:
    return Rows(slot, position, piece[position : position + 1], wants_logits=True)


def _timed(backend: Backend, batch: Sequence[Rows]) -> tuple[Logits, float]:
    began_s = time.perf_counter()
    logits = backend.decode(batch)
    return logits, time.perf_counter() - began_s


def _log_softmax(logits: Logits) -> Logits:
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)
    log_p: Logits = shifted - np.log(total).astype(np.float32)
    return log_p


def _compare(log_q: Logits, log_p: Logits, targets: list[int]) -> _Compared:
    """`log_p` is the reference's, which half precision has moved a little off a sum of 1."""
    p = np.exp(log_p)
    weights = p.sum(axis=1, dtype=np.float64)
    kl = (p * (log_p - log_q)).sum(axis=1, dtype=np.float64) / weights - np.log(weights)
    return _Compared(
        surprise=-log_q[np.arange(len(targets)), targets],
        divergence=np.maximum(kl, 0.0).astype(np.float32),
        agrees=log_q.argmax(axis=1) == log_p.argmax(axis=1),
    )
