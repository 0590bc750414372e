"""What the engine is told when it starts: one frozen value that crosses the process border."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.engine.request import SamplingParams


@dataclass(frozen=True)
class EngineConfig:
    """Sizes are tokens unless the name says otherwise."""

    model_path: Path | None = None
    """The GGUF file; None only with the echo backend."""
    backend: Literal["llama", "echo"] = "llama"
    n_slots: int = 16
    """Conversations that are computed in one batch."""
    n_ctx_seq: int = 1024
    """Cells of one conversation, prompt and answer together."""
    max_answer_tokens: int = 256
    """Kept free for the answer when the prompt is built, and the longest answer."""
    max_input_tokens: int = 512
    """Longest last message; more is cut or refused, as the request says."""
    n_threads: int = 0
    """0 takes the physical cores."""
    prefill_chunk: int = 64
    """Prompt tokens a step while somebody is being answered: bounds the gap in running streams."""
    max_wait_ms: float = 0.0
    """Batching window in front of an idle engine; 0 starts at once."""
    min_batch_size: int = 1
    """Requests that end the batching window early."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """The owner's choice; None leaves the model's own."""
    echo_step_s: float = 0.02
    """Echo backend: how long one step takes."""
