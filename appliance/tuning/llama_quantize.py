"""A model file written again in other types, by llama.cpp's own quantiser. Runs in a process of its own."""

from __future__ import annotations

from pathlib import Path

from llama_cpp import llama_cpp as llama

from appliance.base.errors import ModelFileError
from appliance.engine.llama_library import make_ready

_BUFFER_BYTES = 64 * 2**20
_LOG_ERROR = 4  # GGML_LOG_LEVEL_ERROR


def quantise(
    source: Path, target: Path, kind: str, embedding_type: int | None, n_threads: int, n_passed_over: int = 0
) -> None:
    """Write `target` with its matrices and its output head in `kind`; rows that do not divide into blocks become
    what llama.cpp falls back to.

    Args:
        kind: the type as llama.cpp spells it.
        embedding_type: ggml's number of the type the embedding is to have; None: 8 bits.
        n_threads: beside this one.
        n_passed_over: see `make_ready`.
    Raises:
        ModelFileError: with llama.cpp's own reason; the target may be there in part.
    """
    errors: list[str] = []

    def on_log(level: int, text: bytes, _user_data: object) -> None:
        if level == _LOG_ERROR:
            errors.append(text.decode("utf-8", errors="ignore").strip())

    callback = llama.llama_log_callback(on_log)
    llama.llama_log_set(callback, None)
    make_ready(n_passed_over)
    params = llama.llama_model_quantize_default_params()
    params.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.output_tensor_type = getattr(llama, f"GGML_TYPE_{kind}")
    params.token_embedding_type = llama.GGML_TYPE_Q8_0 if embedding_type is None else embedding_type
    params.allow_requantize = True
    params.max_buf_size = _BUFFER_BYTES
    params.nthread = n_threads
    status = llama.llama_model_quantize(str(source).encode("utf-8"), str(target).encode("utf-8"), params)
    if status != 0:
        reason = errors[-1] if errors else f"status {status}"
        raise ModelFileError(source, f"llama.cpp cannot write it as {kind} ({reason})", "Choose another GGUF file.")
