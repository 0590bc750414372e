"""Writes appliance/engine/trial_reference.npy: the tiny model computed without llama.cpp, in 64 bits.

`.venv/bin/python packaging/trial_reference.py`, after a change of trial_model.py or of llama_trial's steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine import trial_model as model
from appliance.engine.llama_trial import N_BEFORE, N_ROWS, N_SLOTS, REFERENCE

Matrix = NDArray[np.float64]


def reference(**changed: Matrix) -> NDArray[np.float16]:
    """Logits of the rows that `llama_trial.evaluate` returns; `changed` weights stand in for the model's own."""
    weights = {name: changed.get(name.rpartition(".")[2], matrix(name)) for name in model.TYPES}
    ids = model.token_ids(N_BEFORE + max(N_ROWS))
    answers = np.array([_logits(weights, [*ids[:N_BEFORE], ids[N_BEFORE + slot]])[-1] for slot in range(N_SLOTS)])
    rows = []
    for n_rows in N_ROWS:
        is_prompt = n_rows > N_SLOTS
        rows.append(_logits(weights, ids[: N_BEFORE + n_rows])[-N_SLOTS:] if is_prompt else answers[:n_rows])
    return np.concatenate(rows).astype(np.float16)


def matrix(name: str) -> Matrix:
    """One matrix of the model as the numbers its blocks stand for, by the field's own library."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    data = np.frombuffer(model.weights(name, model.TYPES[name]), np.uint8).reshape(model.N_EMBD, -1)
    numbers: Matrix = np.asarray(dequantize(data, GGMLQuantizationType[model.TYPES[name]]), np.float64)
    return numbers


def _logits(weights: dict[str, Matrix], ids: list[int]) -> Matrix:
    """Llama's forward pass, one layer: (tokens, vocabulary)."""
    n = len(ids)
    x = weights["token_embd"][ids]
    h = _normed(x)
    query, key, value = (h @ weights[f"blk.0.attn_{part}"].T for part in "qkv")
    query, key, value = (each.reshape(n, model.N_HEADS, -1) for each in (query, key, value))
    scores = np.einsum("nhd,mhd->hnm", _turned(query), _turned(key)) / np.sqrt(query.shape[-1])
    scores = np.exp(np.where(np.tri(n, dtype=bool), scores - scores.max(-1, keepdims=True), -np.inf))
    attended = np.einsum("hnm,mhd->nhd", scores / scores.sum(-1, keepdims=True), value)
    x = x + attended.reshape(n, -1) @ weights["blk.0.attn_output"].T
    h = _normed(x)
    gate = h @ weights["blk.0.ffn_gate"].T
    x = x + gate / (1 + np.exp(-gate)) * (h @ weights["blk.0.ffn_up"].T) @ weights["blk.0.ffn_down"].T
    return _normed(x) @ weights["output"].T


def _normed(x: Matrix) -> Matrix:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + model.RMS_EPSILON))


def _turned(x: Matrix) -> Matrix:
    """Rotary positions, neighbours as pairs."""
    n_dims = x.shape[-1]
    angles = np.arange(len(x))[:, None] * model.ROPE_BASE ** (-np.arange(0, n_dims, 2) / n_dims)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


if __name__ == "__main__":
    np.save(REFERENCE, reference())
