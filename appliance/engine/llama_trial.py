"""The trial of llama.cpp's kernels: they compute a tiny model and have to come to the numbers that are known.

A CPU says which instructions it has; whether the kernels compiled for them compute, and compute right, is seen here
before a model is loaded. Kernels that kill their process are found by whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from llama_cpp import llama_cpp as llama
from numpy.typing import NDArray

from appliance.base.errors import ModelFileError
from appliance.engine import trial_model

N_ROWS: Final = (1, 3, 4, 16, 64, 512)
"""Rows of a step: one, few and sixteen running answers, and pieces of a prompt."""
TOLERANCE: Final = 0.04
"""Largest error, as a share of the numbers' own size. Right kernels come to 0.01, because they round what they multiply
to 8 bits, each in its own way; where one type of weights is computed wrong it is 0.2 and more."""
REFERENCE: Final = Path(__file__).with_name("trial_reference.npy")
"""What exact arithmetic comes to; packaging/trial_reference.py has written it."""
UNPACK_AGAIN: Final = "Unpack the program again, in full, and let a virus scanner leave its folder alone."
"""What helps where a part of llama.cpp is missing."""
N_SLOTS: Final = 16
N_BEFORE: Final = 8
"""Tokens that every conversation has before the step: with one alone there is nothing to attend to."""


def largest_error(n_threads: int) -> float:
    """Evaluate every shape with the kernels that are loaded; the largest relative error, infinite where a number is
    none or llama.cpp gives up. Raises ModelFileError where the right numbers cannot be read."""
    try:
        known = np.load(REFERENCE)
    except (OSError, ValueError) as error:
        raise ModelFileError(REFERENCE, "is missing or damaged", UNPACK_AGAIN) from error
    found = evaluate(n_threads)
    if found is None or not np.isfinite(found).all():
        return float("inf")
    errors = np.linalg.norm(found - known, axis=1) / np.linalg.norm(known, axis=1)
    return float(errors.max())


def evaluate(n_threads: int) -> NDArray[np.float32] | None:
    """The logits of the last rows, 16 at most, of each step in N_ROWS: (rows, vocabulary). None where llama.cpp gives
    up."""
    with _file() as path:
        model_params = llama.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model = llama.llama_model_load_from_file(path.encode(), model_params)
    if not model:
        return None
    params = llama.llama_context_default_params()
    params.n_ctx = N_SLOTS * trial_model.N_CTX
    params.n_seq_max = params.n_outputs_max = N_SLOTS
    params.n_batch = params.n_ubatch = max(N_ROWS)
    params.n_threads = params.n_threads_batch = n_threads
    params.kv_unified = False
    context = llama.llama_init_from_model(model, params)
    try:
        return _steps(context) if context else None
    finally:
        if context:
            llama.llama_free(context)
        llama.llama_model_free(model)


def _steps(context: Any) -> NDArray[np.float32] | None:
    """Few rows are one token of as many conversations, as when answers run; many are one prompt."""
    memory = llama.llama_get_memory(context)
    ids = trial_model.token_ids(N_BEFORE + max(N_ROWS))
    before = [(slot, position, ids[position]) for slot in range(N_SLOTS) for position in range(N_BEFORE)]
    if _logits(context, before) is None:
        return None
    found = []
    for n_rows in N_ROWS:
        is_prompt = n_rows > N_SLOTS
        new = enumerate(ids[N_BEFORE : N_BEFORE + n_rows])
        rows = [(0, N_BEFORE + n, i) if is_prompt else (n, N_BEFORE, i) for n, i in new]
        logits = _logits(context, rows)
        if logits is None:
            return None
        found.append(logits)
        for slot in range(N_SLOTS):
            llama.llama_memory_seq_rm(memory, slot, N_BEFORE, -1)
    return np.concatenate(found)


def _logits(context: Any, rows: Sequence[tuple[int, int, int]]) -> NDArray[np.float32] | None:
    """Evaluate rows of (slot, position, token); the logits of the last of them, None where llama.cpp gives up."""
    batch = llama.llama_batch_init(len(rows), 0, 1)
    try:
        batch.n_tokens = len(rows)
        for n, (slot, position, token_id) in enumerate(rows):
            batch.token[n], batch.pos[n] = token_id, position
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, slot
            batch.logits[n] = n >= len(rows) - N_SLOTS
        if llama.llama_decode(context, batch) != 0:
            return None
        shape = (min(len(rows), N_SLOTS), trial_model.N_EMBD)
        return np.ctypeslib.as_array(llama.llama_get_logits(context), shape=shape).copy()
    finally:
        llama.llama_batch_free(batch)


@contextlib.contextmanager
def _file() -> Iterator[str]:
    """A path of the tiny model; in memory where the system has such files, so that a full disk does no harm."""
    if (in_memory := getattr(os, "memfd_create", None)) is not None:
        with os.fdopen(in_memory("trial.gguf"), "wb") as file:
            file.write(trial_model.model_file())
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="office-chat-trial-") as folder:
        path = Path(folder) / "trial.gguf"
        path.write_bytes(trial_model.model_file())
        yield str(path)
