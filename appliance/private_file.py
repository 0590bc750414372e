"""Small files that only this account may read: written whole or not at all, and read again when somebody changed them.

On Windows the mode means nothing; there the data folder's own rights decide, and the default one is the account's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from appliance.errors import StartFailed


def write_private(path: Path, content: bytes) -> None:
    """Replace the file; whoever reads meanwhile sees the old one or the new one. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


class PrivateRecord:
    """One JSON object in a private file. A command changes it while the program runs, so a look costs one stat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._value: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """What stands there now; {} without a file. Not to be changed by the caller.

        Raises:
            StartFailed: it cannot be read; an unreadable list of rights is no empty one.
        """
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                value = json.loads(self._path.read_bytes())
                if not isinstance(value, dict):
                    raise ValueError("no object")
                self._value, self._seen = value, seen
        except FileNotFoundError:
            self._value, self._seen = {}, None
        except (OSError, ValueError) as error:
            problem = f"{self._path}: cannot be read ({type(error).__name__})"
            raise StartFailed(f"{problem}. Make it yours, or remove it and set what was in it anew.") from error
        return self._value

    def write(self, value: dict[str, Any]) -> None:
        """Replace it; raises StartFailed."""
        try:
            write_private(self._path, json.dumps(value, ensure_ascii=False, indent=1).encode())
        except OSError as error:
            raise StartFailed(f"{self._path}: cannot be written ({error.strerror or type(error).__name__}).") from error
