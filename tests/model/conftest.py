"""The real model and, where it is at hand, the Qwen tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_cpp import llama_cpp as llama

from appliance.engine.config import EngineConfig
from appliance.engine.llama_backend import LlamaBackend, LlamaVocabulary

N_SLOTS = 8


@pytest.fixture(scope="module")
def backend(starter_model: Path) -> Iterator[LlamaBackend]:
    """The starter model in this process, on one thread: these tests compare numbers, not times."""
    loaded = LlamaBackend(EngineConfig(model_path=starter_model, n_slots=N_SLOTS, n_ctx_seq=256, n_threads=1))
    yield loaded
    loaded.close()


@pytest.fixture
def empty_backend(backend: LlamaBackend) -> Iterator[LlamaBackend]:
    """The same with nothing in any slot, before and after."""
    yield backend
    for slot in range(N_SLOTS):
        backend.truncate(slot, 0)


@pytest.fixture(scope="session")
def qwen_file(project_root: Path) -> Path:
    """A GGUF with the Qwen2 tokenizer; its weights are not needed."""
    named = os.environ.get("QWEN_VOCABULARY_GGUF")
    path = Path(named) if named else project_root.parent / "shared" / "models" / "qwen2-vocab.gguf"
    if not path.is_file():
        pytest.skip(f"no Qwen tokenizer at {path}: set QWEN_VOCABULARY_GGUF to a GGUF of Qwen2 or Qwen2.5")
    return path


@pytest.fixture(scope="session")
def qwen(qwen_file: Path) -> Iterator[LlamaVocabulary]:
    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(str(qwen_file).encode(), params)
    assert model
    yield LlamaVocabulary(model)
    llama.llama_model_free(model)
