"""llama.cpp behind the backend protocol: the only import of llama_cpp.

Calls are thin ctypes; the batch is filled through numpy views of its own buffers (measured: 0.04 ms a step).
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import __version__ as llama_version
from llama_cpp import llama_cpp as llama
from numpy.typing import NDArray

from appliance.base.errors import ModelFileError
from appliance.engine.backend import N_BATCH, DecodeFailed, Logits, NoRoom, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import thread_count
from appliance.engine.llama_library import instructions, make_ready
from appliance.engine.request import SamplingParams
from appliance.engine.wire import Kernels

_LOG_ERROR = 4  # GGML_LOG_LEVEL_ERROR

# What a model's authors recommend, where the file does not say it (general.sampling.*); matched in this order.
_SAMPLING_TABLE: tuple[tuple[str, SamplingParams], ...] = (
    ("qwen2", SamplingParams(0.7, 20, 0.8, 0.0, 1.1)),
    ("smollm", SamplingParams(0.2, 40, 0.9, 0.0, 1.1)),
    ("", SamplingParams(0.7, 40, 0.9, 0.05, 1.1)),
)

_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class LlamaVocabulary:
    """Tokens of a loaded model."""

    def __init__(self, model: Any) -> None:
        self._vocab = llama.llama_model_get_vocab(model)
        self.n_vocab: int = llama.llama_vocab_n_tokens(self._vocab)
        bos = llama.llama_vocab_bos(self._vocab)
        self.begin_ids: tuple[int, ...] = (bos,) if llama.llama_vocab_get_add_bos(self._vocab) and bos >= 0 else ()
        self._is_end = np.array([llama.llama_vocab_is_eog(self._vocab, i) for i in range(self.n_vocab)])
        self._pieces: dict[int, bytes] = {}
        ends = [self._text(int(i)) for i in np.flatnonzero(self._is_end)]
        turn = self.tokenize("<|im_start|>", markers=True)
        markers = {*ends, *(["<|im_start|>"] if len(turn) == 1 else [])}
        self.marker_texts = tuple(sorted(m for m in markers if m.startswith("<|")))  # "</s>" may be honest HTML

    def tokenize(self, text: str, *, markers: bool) -> list[int]:
        """See `Vocabulary`."""
        data = text.encode("utf-8", errors="ignore")
        n_max = len(data) + 8
        while True:
            buffer = (llama.llama_token * n_max)()
            n = llama.llama_tokenize(self._vocab, data, len(data), buffer, n_max, False, markers)
            if n >= 0:
                return list(buffer[:n])
            n_max = -n

    def piece(self, token_id: int) -> bytes:
        """See `Vocabulary`. A piece can be longer than 32 bytes: a negative answer is the size it needs."""
        if token_id not in self._pieces:
            n_max = 64
            while True:
                buffer = ctypes.create_string_buffer(n_max)
                n = llama.llama_token_to_piece(self._vocab, token_id, buffer, n_max, 0, False)
                if n >= 0:
                    break
                n_max = -n
            self._pieces[token_id] = buffer.raw[:n]
        return self._pieces[token_id]

    def is_end(self, token_id: int) -> bool:
        """See `Vocabulary`."""
        return bool(self._is_end[token_id])

    def _text(self, token_id: int) -> str:
        return (llama.llama_vocab_get_text(self._vocab, token_id) or b"").decode("utf-8", errors="ignore")

    def text_or_empty(self, token_id: int) -> str:
        """A marker's own text, for the chat template; empty where the model has no such token."""
        return self._text(token_id) if token_id >= 0 else ""

    def special_texts(self) -> dict[str, str]:
        """Variables a chat template may use."""
        return {
            "bos_token": self.text_or_empty(llama.llama_vocab_bos(self._vocab)),
            "eos_token": self.text_or_empty(llama.llama_vocab_eos(self._vocab)),
        }


class LlamaBackend:
    """A loaded model with its KV cells. Owned by one thread."""

    def __init__(self, config: EngineConfig, announce: Callable[[Kernels], None] = lambda _kernels: None) -> None:
        """Load the file; raises ModelFileError, and what `make_ready` raises.

        `announce` is told of the kernels before they are touched and after they have proved right.
        """
        assert config.model_path is not None
        self._errors: list[str] = []
        self._log_callback = llama.llama_log_callback(self._on_log)  # kept: llama.cpp holds only its address
        llama.llama_log_set(self._log_callback, None)
        n_threads = thread_count(config)
        self.kernels = make_ready(config.n_kernels_passed_over, n_threads, lambda name: announce(Kernels(name)))
        announce(Kernels(self.kernels, are_right=True))
        self.instructions = instructions()
        self._model = self._load(config.model_path, config.mlock)
        self.vocabulary = LlamaVocabulary(self._model)
        self.template_globals: dict[str, Any] = self.vocabulary.special_texts()
        template = llama.llama_model_chat_template(self._model, None)
        self.chat_template = template.decode("utf-8") if template else _CHATML
        # The file's own name without its quantisation: general.name is often a training run's, not what people know.
        self.model_name = re.sub(r"[.-](I?Q\d\w*|B?F16|F32)$", "", config.model_path.stem, flags=re.IGNORECASE)
        self.fingerprint = _fingerprint(config)
        self.sampling = self._own_sampling(config.model_path)
        self._n_slots = config.n_slots
        self._held: list[list[int]] = [[] for _ in range(config.n_slots)]
        self._context = self._new_context(config)
        self._memory = llama.llama_get_memory(self._context)
        self._allocate_batch()

    def decode(self, batch: Sequence[Rows]) -> Logits:
        """See `Backend`."""
        n, n_logits = 0, 0
        self._wants[:] = 0
        for rows in batch:
            count = len(rows.token_ids)
            part = slice(n, n + count)
            self._tokens[part] = rows.token_ids
            self._positions[part] = np.arange(rows.first_position, rows.first_position + count)
            self._slots[part] = rows.slot
            n += count
            if rows.wants_logits:
                self._wants[n - 1] = 1
                n_logits += 1
        self._batch.n_tokens = n
        status = llama.llama_decode(self._context, self._batch)
        if status == 1:
            raise NoRoom(f"llama_decode found no room for {n} rows")
        if status != 0:
            raise DecodeFailed(f"llama_decode answered {status}")
        for rows in batch:
            self._held[rows.slot] += rows.token_ids
        n_vocab = self.vocabulary.n_vocab
        if not n_logits:
            return np.empty((0, n_vocab), dtype=np.float32)
        logits = llama.llama_get_logits(self._context)
        return np.ctypeslib.as_array(logits, shape=(n_logits, n_vocab))

    def held(self, slot: int) -> list[int]:
        """See `Backend`. Our own record, checked against the last position llama.cpp knows."""
        held = self._held[slot]
        n_cells = llama.llama_memory_seq_pos_max(self._memory, slot) + 1
        return held if n_cells == len(held) else [*held[:n_cells], *[-1] * (n_cells - len(held))]

    def truncate(self, slot: int, n_tokens: int) -> None:
        """See `Backend`."""
        llama.llama_memory_seq_rm(self._memory, slot, n_tokens, -1)
        del self._held[slot][n_tokens:]

    def save(self, slot: int) -> NDArray[np.uint8]:
        """See `Backend`. 12,288 bytes a token for the 0.5B model; 1.5 ms for 1,000 tokens."""
        n_bytes = llama.llama_state_seq_get_size(self._context, slot)
        data = np.empty(n_bytes, dtype=np.uint8)
        pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        n_written = llama.llama_state_seq_get_data(self._context, pointer, n_bytes, slot)
        return data[:n_written]

    def restore(self, slot: int, data: NDArray[np.uint8], token_ids: Sequence[int]) -> bool:
        """See `Backend`."""
        pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        n_read = llama.llama_state_seq_set_data(self._context, pointer, data.nbytes, slot)
        n_cells = llama.llama_memory_seq_pos_max(self._memory, slot) + 1
        if n_read != data.nbytes or n_cells != len(token_ids):
            self.truncate(slot, 0)
            return False
        self._held[slot] = [int(i) for i in token_ids]
        return True

    def move(self, source: int, target: int) -> None:
        """See `Backend`. Out and in again: llama.cpp's own copy between streams waits for the next evaluation,
        and would carry over whatever has been put into the source by then.
        """
        token_ids = self._held[source].copy()
        data = self.save(source)
        self.truncate(source, 0)
        if not self.restore(target, data, token_ids):
            raise DecodeFailed(f"a state of {len(token_ids)} tokens could not be moved")

    def use_threads(self, n_threads: int) -> None:
        """From the next `decode` on."""
        llama.llama_set_n_threads(self._context, n_threads, n_threads)

    def close(self) -> None:
        """See `Backend`."""
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def _load(self, path: Path, mlock: bool) -> Any:
        if not path.is_file():
            raise ModelFileError(path, "there is no such file", "Give the path of a GGUF file.")
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise ModelFileError(path, "this is not a GGUF model file", "Get the model in GGUF format.")
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        if mlock:
            params.load_mode = llama.LLAMA_LOAD_MODE_MMAP_MLOCK
        model = llama.llama_model_load_from_file(str(path).encode("utf-8"), params)
        if model:
            return model
        said = " ".join(self._errors)
        if "within the file bounds" in said or "failed to read" in said or "unexpectedly reached end" in said:
            raise ModelFileError(path, "the file is cut off", "Copy or download it again, in full.")
        reason = self._errors[0].strip() if self._errors else "no reason given"
        raise ModelFileError(path, f"llama.cpp cannot load it ({reason})", "Choose another GGUF file.")

    def _new_context(self, config: EngineConfig) -> Any:
        assert config.model_path is not None
        params = llama.llama_context_default_params()
        params.n_ctx = config.n_slots * config.n_ctx_seq
        params.n_seq_max = config.n_slots
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_outputs_max = config.n_slots  # the default reserves a row of logits for every row of the batch
        params.n_threads = params.n_threads_batch = thread_count(config)
        params.kv_unified = False  # else every token attends over everybody's cells
        params.no_perf = True
        context = llama.llama_init_from_model(self._model, params)
        if not context:
            raise ModelFileError(
                config.model_path,
                f"no memory for {config.n_slots} conversations of {config.n_ctx_seq} tokens",
                "Lower max_batch_size or max_context_tokens, or choose a smaller model.",
            )
        return context

    def _allocate_batch(self) -> None:
        self._tokens = np.zeros(N_BATCH, dtype=np.int32)
        self._positions = np.zeros(N_BATCH, dtype=np.int32)
        self._slots = np.zeros(N_BATCH, dtype=np.int32)
        self._wants = np.zeros(N_BATCH, dtype=np.int8)
        self._n_slot_ids = np.ones(N_BATCH, dtype=np.int32)
        first = self._slots.ctypes.data
        self._slot_pointers = (ctypes.POINTER(llama.llama_seq_id) * N_BATCH)(
            *(ctypes.cast(first + 4 * i, ctypes.POINTER(llama.llama_seq_id)) for i in range(N_BATCH))
        )
        batch: Any = llama.llama_batch()
        batch.token = self._tokens.ctypes.data_as(ctypes.POINTER(llama.llama_token))
        batch.pos = self._positions.ctypes.data_as(ctypes.POINTER(llama.llama_pos))
        batch.n_seq_id = self._n_slot_ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        batch.seq_id = ctypes.cast(self._slot_pointers, ctypes.POINTER(ctypes.POINTER(llama.llama_seq_id)))
        batch.logits = self._wants.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self._batch = batch

    def _own_sampling(self, path: Path) -> SamplingParams:
        name = f"{self._meta('general.basename')} {self._meta('general.architecture')} {path.stem}".lower()
        table = next(params for key, params in _SAMPLING_TABLE if key in name)

        def meta(key: str, otherwise: float | None) -> float:
            value = self._meta(f"general.sampling.{key}")
            return float(value) if value else float(otherwise or 0.0)

        return SamplingParams(
            temperature=meta("temp", table.temperature),
            top_k=int(meta("top_k", table.top_k)),
            top_p=meta("top_p", table.top_p),
            min_p=meta("min_p", table.min_p),
            repetition_penalty=meta("penalty_repeat", table.repetition_penalty),
        )

    def _meta(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(512)
        n = llama.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", errors="ignore") if n >= 0 else ""

    def _on_log(self, level: int, text: bytes, _user_data: object) -> None:
        if level == _LOG_ERROR:
            self._errors = [*self._errors[-7:], text.decode("utf-8", errors="ignore")]


def _fingerprint(config: EngineConfig) -> str:
    """Digest of the model file's size, its first and last MB, and what else a saved KV state depends on."""
    assert config.model_path is not None
    size = config.model_path.stat().st_size
    digest = hashlib.sha256(f"{llama_version} {size} {config.n_ctx_seq}".encode())
    with config.model_path.open("rb") as file:
        digest.update(file.read(2**20))
        file.seek(max(0, size - 2**20))
        digest.update(file.read())
    return digest.hexdigest()[:16]
