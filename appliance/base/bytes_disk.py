"""diskcache's way to files, without pickle: whoever can write into the folder could put code into one."""

from __future__ import annotations

from typing import Any

import diskcache
from diskcache.core import MODE_BINARY, MODE_RAW


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache ships no types
    """Values are bytes, keys are text; what else lies there is not there."""

    def get(self, key: Any, raw: bool) -> Any:
        """A key."""
        return super().get(key, True) if raw else ""

    def store(self, value: Any, read: bool, key: Any = diskcache.UNKNOWN) -> Any:
        """Keep bytes."""
        assert isinstance(value, bytes)
        return super().store(value, read, key=key)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        """A value; an open file where it lies in one and `read` asks for that."""
        if mode == MODE_BINARY or (mode == MODE_RAW and isinstance(value, bytes)):
            return super().fetch(mode, filename, value, read)
        return None
