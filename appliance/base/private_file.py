"""Small files that only this account may read: written whole or not at all, and read again when somebody changed them.

A power cut can spoil a file all the same. Beside each lies a copy of what could last be read (`.good`); where the file
cannot be read any more it is put aside (`.damaged`), and the copy takes its place.

On Windows the mode means nothing; there the data folder's own rights decide, and the default one is the account's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from appliance.base.errors import StartFailed

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_GOOD: Final = ".good"
_DAMAGED: Final = ".damaged"


def write_private(path: Path, content: bytes) -> None:
    """Replace the file; whoever reads meanwhile sees the old one or the new one. Raises OSError."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    if os.name == "posix":  # the new name is on the disk only when its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def good_copy(path: Path) -> Path:
    """Where what could last be read of a file is kept."""
    return path.with_name(path.name + _GOOD)


def write_sound(path: Path, content: bytes) -> None:
    """As `write_private`, for `read_sound`: with its good copy. Raises OSError."""
    write_private(path, content)
    write_private(good_copy(path), content)


def keep_good(path: Path, content: bytes) -> None:
    """Note `content` as what could last be read of the file. Raises OSError."""
    copy = good_copy(path)
    if not copy.exists() or copy.read_bytes() != content:
        write_private(copy, content)


def damaged_files(folder: Path) -> list[str]:
    """Files there that were put aside because they could not be read; their owner deletes them."""
    return sorted(path.name.removesuffix(_DAMAGED) for path in folder.glob(f"*{_DAMAGED}"))


def read_sound(path: Path, parse: Callable[[bytes], _T]) -> _T:
    """What `parse` makes of the file, or of the last good copy where it raises ValueError.

    Raises OSError, FileNotFoundError among it, and ValueError where there is no good copy either.
    """
    content = path.read_bytes()
    try:
        value = parse(content)
    except ValueError as error:
        try:
            good = good_copy(path).read_bytes()
            value = parse(good)
        except (OSError, ValueError):
            raise error from None
        _log.error("%s was damaged (%s): what could last be read of it is in force", path.name, type(error).__name__)
        with contextlib.suppress(OSError):  # a folder that cannot be written: the copy holds all the same
            write_private(path.with_name(path.name + _DAMAGED), content)
            write_private(path, good)
        return value
    with contextlib.suppress(OSError):  # without a copy the file itself still holds
        keep_good(path, content)
    return value


def is_cut_off(content: bytes, path: Path) -> bool:
    """Whether it is only the beginning of what could last be read: for formats in which that can be read too."""
    try:
        good = good_copy(path).read_bytes()
    except OSError:
        return False
    return len(content) < len(good) and good.startswith(content)


def json_object(content: bytes) -> dict[str, Any]:
    """For `read_sound`. Raises ValueError."""
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


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
                self._value, self._seen = read_sound(self._path, json_object), seen
        except FileNotFoundError:
            self._value, self._seen = {}, None
        except (OSError, ValueError) as error:
            problem = f"{self._path}: cannot be read ({type(error).__name__})"
            raise StartFailed(f"{problem}. Make it yours, or remove it and set what was in it anew.") from error
        return self._value

    def write(self, value: dict[str, Any]) -> None:
        """Replace it; raises StartFailed."""
        content = json.dumps(value, ensure_ascii=False, indent=1).encode()
        try:
            write_sound(self._path, content)
        except OSError as error:
            raise StartFailed(f"{self._path}: cannot be written ({error.strerror or type(error).__name__}).") from error
