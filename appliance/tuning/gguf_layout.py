"""Where a GGUF file keeps its tensors, and the same file written with an output head of its own.

Only the header is read and data is copied in pieces: the field's library (`gguf`) takes 8 s and 520 MB to open the
Qwen file, because it makes an array of every token, and brings an HTTP client along. The tests check against it.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import errno
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from appliance.base.errors import ModelFileError

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"

_N_TEXT_BYTES = 400
"""Longer values are chat templates and the like: only that they are there is kept."""
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_COUNTS_AT = 8  # after magic and version: number of tensors, number of values
_COPY_BYTES = 2**22


@dataclass(frozen=True)
class Tensor:
    """One tensor's place. `offset` counts from the start of the data; `size_bytes` includes what fills it up."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    size_bytes: int

    @property
    def n_elements(self) -> int:
        """Weights in it."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """A file's header, as far as copying needs it."""

    path: Path
    alignment: int
    n_values: int
    table_end: int
    """Where the description of the last tensor ends."""
    data_start: int
    n_parts: int
    """Files the model is split into."""
    tensors: dict[str, Tensor]
    values: dict[str, float | str]
    """What the header says of the model: numbers and short texts; "" for a long one, lists left out."""

    @property
    def has_tied_head(self) -> bool:
        """Whether the embedding serves as output head: then it cannot be repacked for fast kernels."""
        return HEAD not in self.tensors and EMBEDDING in self.tensors


def read_layout(path: Path) -> Layout:
    """Read the header; raises ModelFileError for what is no whole GGUF header, OSError for the disk's own."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(data).layout(path)
    except (struct.error, _BeyondEnd) as error:
        raise ModelFileError(path, "is cut off", "Copy or download it again, in full.", "cut_off") from error
    except (KeyError, ValueError, OverflowError) as error:
        raise ModelFileError(path, "its header cannot be read", "Get the file again.", "header") from error


def write_with_head(source: Layout, head: Tensor, head_file: Layout, target: Path) -> None:
    """Write `source` again with `head`, a tensor of `head_file`, as its output head. Raises OSError."""
    end = max(tensor.offset + tensor.size_bytes for tensor in source.tensors.values())
    head_offset = _aligned(end, source.alignment)
    entry = _text(HEAD) + struct.pack("<I", len(head.shape)) + struct.pack(f"<{len(head.shape)}Q", *head.shape)
    entry += struct.pack("<IQ", head.type_id, head_offset)
    with source.path.open("rb") as old, head_file.path.open("rb") as giver, target.open("wb") as new:
        new.write(old.read(_COUNTS_AT))
        new.write(struct.pack("<QQ", len(source.tensors) + 1, source.n_values))
        old.seek(16, 1)
        _copy(old, new, source.table_end - old.tell())
        new.write(entry)
        data_start = _aligned(new.tell(), source.alignment)
        new.write(bytes(data_start - new.tell()))
        old.seek(source.data_start)
        _copy(old, new, end)
        new.write(bytes(data_start + head_offset - new.tell()))
        giver.seek(head_file.data_start + head.offset)
        _copy(giver, new, head.size_bytes)
        new.write(bytes(_aligned(new.tell(), source.alignment) - new.tell()))


class _BeyondEnd(ValueError):
    """The header tells of tensors that the file has no room for."""


class _Header:
    """Reads on through the mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = _COUNTS_AT
        if data[:4] != b"GGUF" or struct.unpack_from("<I", data, 4)[0] not in (2, 3):
            raise ValueError("no GGUF of version 2 or 3")

    def layout(self, path: Path) -> Layout:
        n_tensors, n_values = self._take("QQ")
        values: dict[str, float | str] = {}
        for _ in range(n_values):
            name = self._string()
            value = self._value(*self._take("I"))
            if value is not None:
                values[name] = value
        alignment = int(values.get("general.alignment", 32))
        entries = [self._entry() for _ in range(n_tensors)]
        data_start = _aligned(self._at, alignment)
        starts = sorted(entry[3] for entry in entries)
        sizes = dict(zip(starts, [*starts[1:], len(self._data) - data_start], strict=False))  # a part may have none
        tensors = {entry[0]: Tensor(*entry, size_bytes=sizes[entry[3]] - entry[3]) for entry in entries}
        if any(tensor.size_bytes <= 0 for tensor in tensors.values()):
            raise _BeyondEnd
        n_parts = int(values.get("split.count", 1)) or 1
        return Layout(path, alignment, n_values, self._at, data_start, n_parts, tensors, values)

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        (n_dimensions,) = self._take("I")
        shape = self._take(f"{n_dimensions}Q")
        type_id, offset = self._take("IQ")
        return name, shape, type_id, offset

    def _value(self, kind: int) -> float | str | None:
        """A number or a text; None for a list, which is passed over."""
        if kind == _TEXT:
            (n_bytes,) = struct.unpack_from("<Q", self._data, self._at)
            if n_bytes <= _N_TEXT_BYTES:
                return self._string()
            self._skip_text()
            return ""
        if kind == _LIST:
            item, n_items = self._take("IQ")
            if item == _TEXT:
                for _ in range(n_items):
                    self._skip_text()
            else:
                self._at += n_items * struct.calcsize(_FIXED[item])
        else:
            number: float = self._take(_FIXED[kind])[0]
            return number
        return None

    def _string(self) -> str:
        (n_bytes,) = self._take("Q")
        self._at += n_bytes
        return self._data[self._at - n_bytes : self._at].decode("utf-8")

    def _skip_text(self) -> None:
        self._at += 8 + struct.unpack_from("<Q", self._data, self._at)[0]

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _copy(source: BinaryIO, target: BinaryIO, n_bytes: int) -> None:
    while n_bytes > 0:
        piece = source.read(min(n_bytes, _COPY_BYTES))
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        target.write(piece)
        n_bytes -= len(piece)
