"""One program on one data folder: the second start learns the address of the first.

The claim is a lock the system holds for the process, so that it ends with it, however it ends; the file stays.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from appliance.base.errors import ApplianceError, StartFailed

_log = logging.getLogger(__name__)
_READ_S = 5.0
"""So long the first one may take between its claim and its address."""
_LOCKED_BYTE = 2**20  # beyond the address, which a locked byte would hide on Windows


class AlreadyRunning(ApplianceError):
    """Another program has this data folder. `url`: where its page is, as seen from this PC; "" when it has not said."""

    def __init__(self, url: str) -> None:
        super().__init__(f"it is already running at {url}" if url else "it is already being started")
        self.url = url


class Claim:
    """Held as long as `claim` is open."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def publish(self, url: str) -> None:
        """Leave the page's address for those who start a second one."""
        self._file.truncate(0)
        self._file.write(url)
        self._file.flush()


@contextlib.contextmanager
def claim(path: Path) -> Iterator[Claim]:
    """Hold the data folder that `path` lies in. Raises AlreadyRunning, or StartFailed where the file is another's."""
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        problem = f"cannot be written ({error.strerror or type(error).__name__})"
        raise StartFailed(f"{path}: {problem}. Make it yours, or choose another folder with --data-dir.") from error
    with file:
        if not _lock(file):
            raise AlreadyRunning(_address(path))
        claimed = Claim(file)
        claimed.publish("")
        try:
            yield claimed
        finally:
            claimed.publish("")


def _lock(file: IO[str]) -> bool:
    """Whether it is ours now. A folder on a system without locks is taken to be."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        _log.warning("a second start cannot be noticed: %s", error.strerror or type(error).__name__)
    return True


def _address(path: Path) -> str:
    until = time.monotonic() + _READ_S
    while not (url := path.read_text(encoding="utf-8")) and time.monotonic() < until:
        time.sleep(0.05)
    return url if url.startswith("http://") else ""
