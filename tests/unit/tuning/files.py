"""Small GGUF files, written by the field's own library."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_VOCAB = 64, 96


def write_model(path: Path, *, tied: bool = True, alignment: int = 32, n_parts: int = 1, seed: int = 0) -> Path:
    """A header with texts, lists and numbers, an embedding in 8 bits, a matrix, a norm whose size fills no block."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("不存在 & small")
    writer.add_custom_alignment(alignment)
    writer.add_block_count(1)
    writer.add_token_list([f"token {i}" for i in range(N_VOCAB)])
    writer.add_token_scores([0.5] * N_VOCAB)
    writer.add_bool("some.flag", True)
    if n_parts > 1:
        writer.add_uint16("split.count", n_parts)

    def matrix(name: str, n_rows: int) -> None:
        values = random.standard_normal((n_rows, N_EMBD), dtype=np.float32)
        packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    matrix("token_embd.weight", N_VOCAB)
    matrix("blk.0.ffn_up.weight", 32)
    if not tied:
        matrix("output.weight", N_VOCAB)
    writer.add_tensor("output_norm.weight", random.standard_normal(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
