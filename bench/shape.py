"""A GGUF of Qwen2.5-0.5B-Instruct's exact shape and tokenizer with random weights.

Speed depends on the shape and the quantisation, not on what the weights say, so this stands in for the real file where
that cannot be had. The tokenizer comes out of llama-cpp-python's own source archive.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bench.interleave import progress

NAME = "shape"
HELP = "write the random-weight GGUF the measurements use, and print its path"

_OWN_HEAD = "-head"
TYPES = ("q4_0", "q8_0", "q4_k_m", "q4_0-head", "iq4_nl-head")
"""As people download them; `-head` has its own output head of the same type, as the tuner writes it."""
VOCABULARY_VARIABLE = "OFFICE_CHAT_QWEN_VOCAB"
"""Path of a GGUF with the Qwen2 tokenizer, for a machine without a package index."""

_N_LAYERS, _N_EMBD, _N_HEADS, _N_KV_HEADS, _N_FF, _N_VOCAB, _HEAD_DIM = 24, 896, 14, 2, 4864, 151_936, 64
_WEIGHT_STD = 0.02
_IM_END, _END_OF_TEXT = 151_645, 151_643
_VOCABULARY_NAME = "ggml-vocab-qwen2.gguf"
_TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which types to write."""
    parser.add_argument("types", nargs="*", default=["q4_0"], choices=TYPES, help="quantisation (default: q4_0)")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder the files are kept in")


def default_cache() -> Path:
    """The user's cache folder for our files."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "office-chat-bench"


def shape_file(kind: str, cache: Path) -> Path:
    """The file of that quantisation, written first if need be: about a minute and 2.3 GB of disk while it runs."""
    path = cache / f"qwen2.5-0.5b-shape-{kind}.gguf"
    if path.is_file():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as scratch:
        plain = Path(scratch) / "f16.gguf"
        progress("writing random weights")
        write_plain(plain, vocabulary, has_head=kind.endswith(_OWN_HEAD))
        progress(f"quantising to {kind}")
        quantised = Path(scratch) / path.name
        _quantise(plain, quantised, kind)
        quantised.replace(path)
    return path


def write_plain(path: Path, vocabulary: Path, *, has_head: bool = False) -> None:
    """The whole model in 16 bits. `has_head` writes the embedding a second time, as the output head."""
    import gguf

    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("Qwen2.5-0.5B-shape (random weights)")
    writer.add_context_length(32_768)
    writer.add_embedding_length(_N_EMBD)
    writer.add_block_count(_N_LAYERS)
    writer.add_feed_forward_length(_N_FF)
    writer.add_head_count(_N_HEADS)
    writer.add_head_count_kv(_N_KV_HEADS)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _add_tokenizer(writer, gguf.GGUFReader(vocabulary))
    _add_weights(writer.add_tensor, np.random.default_rng(0), has_head=has_head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, source: Any) -> None:
    import gguf

    def field(name: str) -> list[Any]:
        return list(source.fields[f"tokenizer.ggml.{name}"].contents())

    tokens, types = field("tokens"), field("token_type")
    n_missing = max(0, _N_VOCAB - len(tokens))  # the real model's table has unused rows at its end as well
    tokens += [f"[PAD{len(tokens) + i}]" for i in range(n_missing)]
    types += [gguf.TokenType.UNUSED] * n_missing
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens[:_N_VOCAB])
    writer.add_token_types(types[:_N_VOCAB])
    writer.add_token_merges(field("merges"))
    writer.add_eos_token_id(_IM_END)
    writer.add_pad_token_id(_END_OF_TEXT)
    writer.add_bos_token_id(_END_OF_TEXT)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _add_weights(add: Callable[[str, Any], None], random: np.random.Generator, *, has_head: bool) -> None:
    def weights(name: str, *shape: int) -> None:
        values = random.standard_normal(shape, dtype=np.float32) * _WEIGHT_STD
        # Biases and norms stay in 32 bits, as in every converted model.
        add(name, values.astype(np.float16) if len(shape) > 1 else values)

    embedding = (random.standard_normal((_N_VOCAB, _N_EMBD), dtype=np.float32) * _WEIGHT_STD).astype(np.float16)
    for name in ("token_embd.weight", "output.weight") if has_head else ("token_embd.weight",):
        add(name, embedding)
    for layer in range(_N_LAYERS):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            add(f"{block}{norm}.weight", np.ones(_N_EMBD, np.float32))
        for part, n_heads in (("q", _N_HEADS), ("k", _N_KV_HEADS), ("v", _N_KV_HEADS)):
            weights(f"{block}attn_{part}.weight", n_heads * _HEAD_DIM, _N_EMBD)
            weights(f"{block}attn_{part}.bias", n_heads * _HEAD_DIM)
        weights(f"{block}attn_output.weight", _N_EMBD, _N_HEADS * _HEAD_DIM)
        weights(f"{block}ffn_gate.weight", _N_FF, _N_EMBD)
        weights(f"{block}ffn_up.weight", _N_FF, _N_EMBD)
        weights(f"{block}ffn_down.weight", _N_EMBD, _N_FF)
    add("output_norm.weight", np.ones(_N_EMBD, np.float32))


def _quantise(source: Path, target: Path, kind: str) -> None:
    from llama_cpp import llama_cpp as llama

    quiet = llama.llama_log_callback(_ignore)
    llama.llama_log_set(quiet, None)
    params = llama.llama_model_quantize_default_params()
    type_name = kind.removesuffix(_OWN_HEAD).upper()
    params.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{type_name}")
    if kind.endswith(_OWN_HEAD):  # else the head gets a type without repacked kernels
        params.token_embedding_type = llama.GGML_TYPE_Q8_0  # looked up a row at a time: costs no speed
        params.output_tensor_type = getattr(llama, f"GGML_TYPE_{type_name}")
    params.nthread = os.cpu_count() or 1
    status = llama.llama_model_quantize(str(source).encode(), str(target).encode(), params)
    if status != 0:
        raise RuntimeError(f"quantising to {kind} failed ({status})")


def _ignore(_level: int, _text: bytes, _data: object) -> None:
    """Nobody wants llama.cpp's 600 lines about tensors."""


def _vocabulary(cache: Path) -> Path:
    """The tokenizer file: named by the owner, kept from an earlier run, or out of the source archive."""
    named = os.environ.get(VOCABULARY_VARIABLE)
    if named:
        return Path(named)
    kept = cache / _VOCABULARY_NAME
    if not kept.is_file():
        archive = source_archive(cache)
        with tarfile.open(archive) as members:
            member = next(m for m in members if m.name.endswith(f"/models/{_VOCABULARY_NAME}"))
            content = members.extractfile(member)
            assert content is not None  # a regular file
            kept.write_bytes(content.read())
    return kept


def source_archive(cache: Path) -> Path:
    """llama-cpp-python's source archive, of the version that is installed; fetched by pip."""
    version = metadata.version("llama-cpp-python")
    pattern = f"llama_cpp_python-{version}.tar.gz"
    if not (cache / pattern).is_file():
        progress(f"fetching the source archive of llama-cpp-python {version}")
        fetch = ["download", "--no-deps", "--no-binary=:all:", "--dest", str(cache), f"llama-cpp-python=={version}"]
        subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", *fetch], check=True, stdout=sys.stderr
        )
    return cache / pattern
