"""A tiny model, made here and the same everywhere: one layer whose weights are of every type a model file may have.

The weights are the bytes of a hash, so any computer makes the same file. Block layouts are ggml's (ggml-common.h), the
file's is GGUF's: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

N_EMBD = 256
"""Also rows and columns of every matrix, and tokens of the vocabulary: the smallest that blocks of 256 fit into."""
N_HEADS = 4
N_CTX = 1024
ROPE_BASE = 10_000.0
RMS_EPSILON = 1e-5

TYPES = {
    "token_embd": "F16",
    "blk.0.attn_q": "Q8_0",
    "blk.0.attn_k": "F16",
    "blk.0.attn_v": "Q4_K",
    "blk.0.attn_output": "Q6_K",
    "blk.0.ffn_gate": "Q4_0",
    "blk.0.ffn_up": "Q4_1",
    "blk.0.ffn_down": "IQ4_NL",
    "output": "Q8_0",
}
NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")

_TYPE_IDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "IQ4_NL": 20}
_BLOCK = {"Q4_0": 32, "Q4_1": 32, "Q8_0": 32, "Q4_K": 256, "Q6_K": 256, "IQ4_NL": 32}
"""Weights a block."""
_ALIGNMENT = 32
_STD = 1 / np.sqrt(N_EMBD)
"""Of every weight: what goes in with a spread of one comes out with one."""


def model_file() -> bytes:
    """The whole GGUF file, some 500 kB."""
    values: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "general.name": "trial",
        "llama.context_length": N_CTX,
        "llama.embedding_length": N_EMBD,
        "llama.block_count": 1,
        "llama.feed_forward_length": N_EMBD,
        "llama.attention.head_count": N_HEADS,
        "llama.attention.layer_norm_rms_epsilon": RMS_EPSILON,
        "llama.rope.freq_base": ROPE_BASE,
        "llama.vocab_size": N_EMBD,
        "tokenizer.ggml.model": "none",
    }
    tensors = [(name, kind, weights(name, kind)) for name, kind in TYPES.items()]
    tensors += [(name, "F32", np.ones(N_EMBD, np.float32).tobytes()) for name in NORMS]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    header += b"".join(_text(key) + _value(value) for key, value in values.items())
    offset = 0
    for name, kind, data in tensors:
        shape = (N_EMBD,) if kind == "F32" else (N_EMBD, N_EMBD)
        entry = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _TYPE_IDS[kind], offset)
        header += _text(f"{name}.weight") + entry
        offset += len(data) + -len(data) % _ALIGNMENT
    parts = [header, *(data for _, _, data in tensors)]
    return b"".join(part + bytes(-len(part) % _ALIGNMENT) for part in parts)


def weights(name: str, kind: str) -> bytes:
    """A matrix of N_EMBD x N_EMBD weights as blocks of `kind`, row by row."""
    if kind == "F16":
        std = 1.0 if name == "token_embd" else _STD
        return ((_bytes(name, N_EMBD**2).astype(np.float32) - 127.5) / 73.9 * std).astype(np.float16).tobytes()
    n_blocks = N_EMBD**2 // _BLOCK[kind]

    def part(label: str, n_bytes: int) -> NDArray[np.uint8]:
        return _bytes(f"{name} {label}", n_blocks * n_bytes).reshape(n_blocks, n_bytes)

    def scale(value: float) -> NDArray[np.uint8]:
        return np.full(n_blocks, value, np.float16).view(np.uint8).reshape(n_blocks, 2)

    # Each scale divides by the spread of what its block's random bytes stand for.
    if kind == "Q4_0":
        columns = [scale(_STD / 4.6), part("quants", 16)]
    elif kind == "Q4_1":
        columns = [scale(_STD / 4.6), scale(-7.5 * _STD / 4.6), part("quants", 16)]
    elif kind == "Q8_0":
        columns = [scale(_STD / 73.9), part("quants", 32)]
    elif kind == "IQ4_NL":
        columns = [scale(_STD / 71), part("quants", 16)]
    elif kind == "Q4_K":
        columns = [scale(_STD / 258), scale(7.5 * _STD / 258), part("scales", 12), part("quants", 128)]
    else:  # Q6_K
        scales = (part("scales", 16).astype(np.int16) % 33 - 16).astype(np.int8).view(np.uint8)
        columns = [part("low", 128), part("high", 64), scales, scale(_STD / 176)]
    return np.concatenate(columns, axis=1).tobytes()


def token_ids(n: int) -> list[int]:
    """The first `n` tokens of the one text that the trial evaluates."""
    return [int(token_id) for token_id in _bytes("tokens", N_CTX)[:n]]


def _bytes(label: str, n: int) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.shake_256(label.encode()).digest(n), np.uint8)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
