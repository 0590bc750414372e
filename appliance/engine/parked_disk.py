"""Parked KV states on disk, in diskcache: it brings expiry, the size limit and eviction.

Writing 12 MB takes 10 ms, so a thread of its own does it; a state is readable from the moment it is put.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import diskcache
import numpy as np
from numpy.typing import NDArray

from appliance.base.bytes_disk import BytesDisk
from appliance.engine.prefix_cache import KvState, Owner

log = logging.getLogger(__name__)

CLOSE_S = 1.0
SWEEP_S = 15.0
_DISK_ERRORS = (OSError, sqlite3.Error, diskcache.Timeout, ValueError)


class DiskShelf:
    """Thread-safe: one lock, never held while writing. Only the account that runs the program can read the files."""

    def __init__(self, directory: Path, fingerprint: str, *, limit_bytes: int) -> None:
        """`fingerprint` names model and settings: states of others are deleted. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        for other in directory.iterdir():
            if other.name != fingerprint:
                shutil.rmtree(other, ignore_errors=True)
        self._cache = _open(directory / fingerprint, limit_bytes)
        self._cache.expire()
        self._sweep_at_s = time.monotonic() + SWEEP_S
        self._lock = threading.Lock()
        self._pending: dict[str, KvState] = {}
        self._inbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="parked-writer", daemon=True)
        self._writer.start()

    def put(self, state: KvState) -> None:
        """See `Shelf`."""
        assert state.owner is not None
        key = state.owner.conversation
        with self._lock:
            self._pending[key] = state
        self._inbox.put(key)

    def peek(self, owner: Owner) -> NDArray[np.int32] | None:
        """See `Shelf`."""
        with self._lock:
            pending = self._pending.get(owner.conversation)
        if pending is not None:
            return pending.token_ids
        with _survive():
            found = self._cache.get(owner.conversation, read=True)
            if found is not None:
                with io.BytesIO(found) if isinstance(found, bytes) else found as file:
                    return _read_head(file)[1]
        return None

    def take(self, owner: Owner) -> KvState | None:
        """See `Shelf`."""
        key = owner.conversation
        with self._lock:
            pending = self._pending.pop(key, None)
        if pending is not None:
            return pending
        with _survive():
            record = self._cache.pop(key)
            if record is not None:
                return _unpack(record)
        return None

    def drop_conversation(self, owner: Owner) -> None:
        """See `Shelf`."""
        with self._lock:
            self._pending.pop(owner.conversation, None)
        with _survive():
            self._cache.delete(owner.conversation)

    def drop_person(self, person: str) -> None:
        """See `Shelf`."""
        with self._lock:
            for key in [k for k, s in self._pending.items() if s.owner is not None and s.owner.person == person]:
                del self._pending[key]
        with _survive():
            self._cache.evict(person)

    def close(self) -> None:
        """See `Shelf`. What is not written within `CLOSE_S` is lost: computing it again beats a program that hangs."""
        self._inbox.put(None)
        self._writer.join(CLOSE_S)

    def _write(self) -> None:
        while (key := self._next_key()) is not None:
            with self._lock:
                state = self._pending.get(key)
            if state is None or state.owner is None:
                continue
            expire_s = state.expires_at - time.time()
            if expire_s > 0:
                with _survive():
                    self._cache.set(key, _pack(state), expire=expire_s, tag=state.owner.person)
            with self._lock:
                written = self._pending.get(key) is state
                if written:
                    del self._pending[key]
            if not written:  # taken, dropped or replaced in the meantime
                with _survive():
                    self._cache.delete(key)
        self._cache.close()

    def _next_key(self) -> str | None:
        """The next state to write. Meanwhile what has expired goes: diskcache itself drops it only when it writes."""
        while True:
            if time.monotonic() >= self._sweep_at_s:
                with _survive():
                    self._cache.expire()
                self._sweep_at_s = time.monotonic() + SWEEP_S
            with contextlib.suppress(queue.Empty):
                return self._inbox.get(timeout=SWEEP_S)


@contextlib.contextmanager
def _survive() -> Iterator[None]:
    """A full, locked or damaged disk costs a conversation its shortcut, never its answer."""
    try:
        yield
    except _DISK_ERRORS as error:
        log.warning("parked conversations: the disk refused (%s)", type(error).__name__)


def _open(directory: Path, limit_bytes: int) -> diskcache.Cache:
    """Open, or delete a damaged one, which holds nothing that cannot be computed again, and start afresh."""
    for _ in range(2):
        try:
            return diskcache.Cache(str(directory), disk=BytesDisk, size_limit=limit_bytes, tag_index=True, timeout=5)
        except sqlite3.OperationalError as error:  # locked, or not to be read now: what lies there may be well
            raise OSError("the store of parked conversations cannot be opened now") from error
        except sqlite3.DatabaseError:
            log.warning("parked conversations on disk are damaged: starting afresh")
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(directory)
    raise OSError("cannot open the store of parked conversations")


def _pack(state: KvState) -> bytes:
    """Header line, token ids, state: plain bytes, so that nothing is ever unpickled."""
    assert state.owner is not None
    header = {
        "person": state.owner.person,
        "conversation": state.owner.conversation,
        "n_tokens": len(state.token_ids),
        "expires_at": state.expires_at,
    }
    return json.dumps(header).encode() + b"\n" + state.token_ids.tobytes() + state.data.tobytes()


def _read_head(file: IO[bytes]) -> tuple[dict[str, Any], NDArray[np.int32]]:
    header = json.loads(file.readline())
    return header, np.frombuffer(file.read(4 * header["n_tokens"]), dtype=np.int32)


def _unpack(record: bytes) -> KvState:
    file = io.BytesIO(record)
    header, token_ids = _read_head(file)
    data = np.frombuffer(record, dtype=np.uint8, offset=file.tell())
    return KvState(Owner(header["person"], header["conversation"]), token_ids, data, header["expires_at"])
