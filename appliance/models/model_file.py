"""What a GGUF file says of itself, read before anybody loads it: kind of model, size, licence, memory, completeness.

Nothing here computes with the model. A file that passes can still be one llama.cpp does not know; its loading says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.base.errors import ModelFileError
from appliance.models.catalogue import SPLIT, part_paths, verify
from appliance.tuning.gguf_layout import Layout, Tensor, read_layout

_TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""ggml's number of a type to its name, weights in a block and bytes of a block."""
_NO_CHAT: Final = frozenset({"bert", "nomic-bert", "jina-bert-v2", "t5encoder", "clip", "wavtokenizer-dec", "whisper"})
"""Architectures of models that encode or listen, and write no answers."""
_NO_MODEL: Final = frozenset({"adapter", "mmproj", "imatrix", "vocab"})
"""What `general.type` calls files that go with a model."""
_RUNNING_BYTES: Final = 250 * 2**20
"""Buffers and Python beside weights and conversations: 970 MB were measured where those two took 632."""
_KV_BYTES_A_NUMBER: Final = 2


@dataclass(frozen=True)
class ModelFacts:
    """Of one whole, readable model."""

    path: Path
    """The file to load; of a model in several files the first."""
    n_parts: int
    size_bytes: int
    """Of all parts."""
    name: str
    """The file's, without its ending and number of parts."""
    architecture: str
    n_weights: int
    quantisation: str
    """The type most of its weights are in."""
    licence: str
    """As its maker wrote it; "" where nothing is said."""
    context_tokens: int
    """Longest text it was made for; 0 where nothing is said."""
    kv_bytes_a_token: int
    """What a conversation takes beside the weights, for each of its tokens."""

    def memory_bytes(self, n_slots: int, n_ctx_seq: int) -> int:
        """What the engine needs at least with so many conversations of so many tokens."""
        return self.size_bytes + self.kv_bytes_a_token * n_slots * n_ctx_seq + _RUNNING_BYTES


def inspect(path: Path) -> ModelFacts:
    """Read the header of every part. Some tenths of a second for a large vocabulary.

    Raises:
        ModelFileError: with the file, what is wrong and the remedy.
    """
    paths = _parts(verify(path))
    try:
        layouts = [read_layout(verify(part)) for part in paths]
        sizes = [part.stat().st_size for part in paths]
    except OSError as error:
        problem = f"cannot be read ({error.strerror or type(error).__name__})"
        raise ModelFileError(path, problem, "Check the disk it is on.", "unreadable") from error
    for layout, size in zip(layouts, sizes, strict=True):
        _refuse_cut_off(layout, size)
    first = layouts[0]
    if first.n_parts != len(paths):
        remedy = "Keep the names its maker gave, with -00001-of-... in them."
        raise ModelFileError(path, f"is one of {first.n_parts} files and not named so", remedy, "part_name")
    architecture = _refuse_no_chat(first)
    tensors = [tensor for layout in layouts for tensor in layout.tensors.values()]
    split = SPLIT.fullmatch(path.name)
    return ModelFacts(
        path=path,
        n_parts=len(paths),
        size_bytes=sum(sizes),
        name=split["stem"] if split else path.stem,
        architecture=architecture,
        n_weights=sum(tensor.n_elements for tensor in tensors),
        quantisation=_quantisation(tensors),
        licence=str(first.values.get("general.license", "")),
        context_tokens=int(_number(first, "context_length")),
        kv_bytes_a_token=_kv_bytes_a_token(first),
    )


def check_whole(path: Path) -> None:
    """Whether one file, perhaps a part of several, has all its weights. Raises ModelFileError and OSError."""
    _refuse_cut_off(read_layout(verify(path)), path.stat().st_size)


def _refuse_cut_off(layout: Layout, size_bytes: int) -> None:
    if _end(layout) > size_bytes:
        raise ModelFileError(layout.path, "is cut off", "Copy or download it again, in full.", "cut_off")


def _parts(path: Path) -> list[Path]:
    """All files of it, each there; raises ModelFileError."""
    split = SPLIT.fullmatch(path.name)
    if split is not None and int(split["number"]) != 1:
        first = part_paths(path)[0].name
        problem = f"is part {int(split['number'])} of several"
        raise ModelFileError(path, problem, f"Name the first one, {first}.", "part", {"first": first})
    paths = part_paths(path)
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        names = ", ".join(missing)
        raise ModelFileError(
            path, f"is not complete: {names} missing", "Get them too.", "parts_missing", {"names": names}
        )
    return paths


def _end(layout: Layout) -> int:
    """Where the last tensor ends; types that are not known here are taken as the file has them."""
    ends = []
    for tensor in layout.tensors.values():
        _, n_weights, n_bytes = _TYPES.get(tensor.type_id, ("", 0, 0))
        size = tensor.n_elements // n_weights * n_bytes if n_weights else tensor.size_bytes
        ends.append(layout.data_start + tensor.offset + size)
    return max(ends, default=layout.data_start)


def _refuse_no_chat(layout: Layout) -> str:
    """The architecture, of a model that can hold a conversation."""
    kind = str(layout.values.get("general.type", "model"))
    architecture = str(layout.values.get("general.architecture", ""))
    remedy = "Choose a model for chat, with Instruct or Chat in its name."
    if kind in _NO_MODEL or not architecture:
        raise ModelFileError(layout.path, "is no model of its own", remedy, "no_model")
    if architecture in _NO_CHAT:
        raise ModelFileError(layout.path, f"writes no answers ({architecture})", remedy, "no_chat")
    return architecture


def _quantisation(tensors: list[Tensor]) -> str:
    counts: Counter[int] = Counter()
    for tensor in tensors:
        counts[tensor.type_id] += tensor.n_elements
    type_id = counts.most_common(1)[0][0] if counts else -1
    return _TYPES[type_id][0] if type_id in _TYPES else ""


def _kv_bytes_a_token(layout: Layout) -> int:
    """Keys and values of all layers; 0 where the header does not say enough."""
    n_heads = _number(layout, "attention.head_count")
    n_kv_heads = _number(layout, "attention.head_count_kv") or n_heads
    head = _number(layout, "embedding_length") / n_heads if n_heads else 0
    keys = _number(layout, "attention.key_length") or head
    values = _number(layout, "attention.value_length") or head
    return int(_number(layout, "block_count") * n_kv_heads * (keys + values) * _KV_BYTES_A_NUMBER)


def _number(layout: Layout, key: str) -> float:
    value = layout.values.get(f"{layout.values.get('general.architecture', '')}.{key}", 0)
    return float(value) if isinstance(value, int | float) else 0.0
