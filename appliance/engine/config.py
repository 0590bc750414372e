"""What the engine is told when it starts: one frozen value that crosses the process border."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

USUAL_PROMPT_TOKENS: Final = 40
"""What is to be computed of a usual question before its answer can begin."""
USUAL_ANSWER_TOKENS: Final = 100


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
    max_itl_ms: float = 500.0
    """Longest gap between two tokens of a running answer that other people's prompts may cause."""
    starvation_limit_ms: float = 150.0
    """Whoever has waited longer comes first; never less than a few steps."""
    priority_session_timeout_s: float = 30.0
    """How long after an answer its person counts as in mid-conversation."""
    reuse: bool = True
    """False computes everything anew every time."""
    parked_ram_mb: int = 192
    parked_disk_mb: int = 2048
    parked_ttl_s: float = 1800.0
    parked_dir: Path | None = None
    """Where parked KV states go that outlive RAM or the process; None keeps them in RAM only."""
    cores: tuple[int, ...] = ()
    """Processor numbers the engine may use; empty means all."""
    priority: Literal["low", "normal", "high", "realtime"] = "normal"
    """realtime only where `cores` leaves one to everybody else."""
    mlock: bool = False
    """Keep the model in RAM: no swapping out over lunch."""
    yields: bool = True
    """Step back while other programs on this computer are busy."""
    max_wait_ms: float = 0.0
    """Batching window in front of an idle engine; 0 starts at once."""
    min_batch_size: int = 1
    """Requests that end the batching window early."""
    padded_remainders: frozenset[int] | None = None
    """What batch_shape.py measured in an earlier life of this engine; None measures."""
    n_kernels_passed_over: int = 0
    """Levels of kernels (kernels.LEVELS) that failed here before."""
    echo_step_s: float = 0.02
    """Echo backend: how long one step takes."""
