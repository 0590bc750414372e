"""Saved answers, for whoever asks exactly the same: on disk, for a short time, never in the way of a chat.

What a question and its answer are is decided elsewhere (cache_key.py); here they are a digest and a text.
Values are JSON bytes under text keys: nothing is ever pickled or unpickled.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import diskcache

from appliance.base.bytes_disk import BytesDisk
from appliance.base.log import where
from appliance.base.private_file import write_private

_log = logging.getLogger(__name__)

FIND_S = 0.25
"""A disk that takes longer is treated as one that knows nothing."""
N_SHOWN_FROM = 3
"""So many different people have asked it before the owner sees an entry, and before its question is written down."""
MAX_WAITING = 64
"""Operations waiting for a slow disk; what comes then is left out."""
_BUSY_S = 0.5
_REOPEN_S = 30.0
_CLOSE_S = 1.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class SavedAnswer:
    """One answer as it was generated, or as the owner corrected it."""

    text: str
    token_ids: tuple[int, ...]
    """Empty for a corrected one."""
    saved_at: float
    """Unix time, s."""
    n_prompt: int
    question: str = ""
    """Known once it has been asked by N_SHOWN_FROM people."""
    persons: tuple[str, ...] = ()
    """Salted digests of the first people who asked."""
    is_pinned: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether the owner may see it."""
        return self.is_pinned or len(self.persons) >= N_SHOWN_FROM


class AnswerCache:
    """Saved answers by digest. Methods belong to the event loop's thread; the disk has one of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int,
        ttl_s: float,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`directory` is made when needed: the entries in `saved`, what the owner pinned or corrected beside them."""
        self.ttl_s = ttl_s
        self._wall_clock = wall_clock
        self._disk = _Disk(directory / "saved", limit_bytes)
        self._pins = _Pins(directory / "pinned.json")
        self._fresh: dict[str, SavedAnswer] = {}
        """What is still on its way to the disk."""
        self._thread = ThreadPoolExecutor(1, "answer-cache")
        self._thread.submit(self._disk.expire)  # opens it before somebody waits for an answer
        self._n_waiting = 0

    async def find(self, digest: str, person: str, question: str) -> SavedAnswer | None:
        """The answer to give, None if there is none in time. `person` is counted as one who asked."""
        if (pinned := self._pins.by_digest.get(digest)) is not None:
            return pinned
        found = self._fresh.get(digest)
        if found is None and self._n_waiting < MAX_WAITING:
            try:
                async with asyncio.timeout(FIND_S):
                    found = await asyncio.wrap_future(self._submit(lambda: self._disk.read(digest)))
            except TimeoutError:
                _log.warning("saved answers: the disk is slow, going on without")
                return None
        if found is None or found.saved_at + self.ttl_s <= self._wall_clock():
            return None
        counted = self._counted(found, [person], question)
        if counted != found:
            self._write(digest, counted)
        return found

    def put(self, digest: str, answer: SavedAnswer, persons: Iterable[str], question: str) -> None:
        """Keep an answer, in place of an earlier one; a pinned one stays. It can be found at once."""
        if digest not in self._pins.by_digest:
            self._write(digest, self._counted(answer, persons, question))

    def forget(self, person: str) -> None:
        """Drop what nobody but this person has asked."""
        tag = self._disk.digest_of(person)
        for digest in [d for d, saved in self._fresh.items() if saved.persons == (tag,)]:
            del self._fresh[digest]
        self._submit(lambda: self._disk.forget(tag))

    def sweep(self) -> None:
        """Drop what is past its time."""
        if not self._n_waiting:
            self._submit(self._disk.expire)

    # -- the owner's view: only what several people have asked ---------------------------------------------------

    async def entries(self) -> dict[str, SavedAnswer]:
        """What the owner may see, pinned answers first, then the newest."""
        stored = await asyncio.wrap_future(self._submit(self._disk.all))
        now = self._wall_clock()
        shown = {d: s for d, s in stored.items() if s.is_shown and s.saved_at + self.ttl_s > now}
        shown |= self._pins.by_digest
        return dict(sorted(shown.items(), key=lambda item: (not item[1].is_pinned, -item[1].saved_at)))

    async def pin(self, digest: str, text: str | None = None) -> None:
        """Keep an entry until it is deleted, with a corrected `text` if one is given.

        Raises:
            KeyError: the owner sees no such entry.
            OSError: it cannot be written.
        """
        entry = (await self.entries())[digest]
        if text is not None and text != entry.text:
            entry = replace(entry, text=text, token_ids=(), saved_at=self._wall_clock())
        pins = self._pins.by_digest | {digest: replace(entry, is_pinned=True, persons=())}
        await asyncio.to_thread(self._pins.save, pins)

    async def delete(self, digest: str) -> None:
        """Drop an entry, pinned or not. Raises OSError where a pin cannot be taken out of its file."""
        self._fresh.pop(digest, None)
        pins = {key: pin for key, pin in self._pins.by_digest.items() if key != digest}
        if len(pins) < len(self._pins.by_digest):
            await asyncio.to_thread(self._pins.save, pins)
        await asyncio.wrap_future(self._submit(lambda: self._disk.delete(digest)))

    async def close(self) -> None:
        """Write what is waiting, for a moment at most, and close."""
        self._submit(self._disk.close)
        await asyncio.wait({asyncio.ensure_future(asyncio.to_thread(self._thread.shutdown))}, timeout=_CLOSE_S)

    def _counted(self, saved: SavedAnswer, persons: Iterable[str], question: str) -> SavedAnswer:
        """With these people among those who asked; the question is kept from the N_SHOWN_FROM-th on."""
        known = dict.fromkeys([*saved.persons, *map(self._disk.digest_of, persons)])
        first = tuple(known)[:N_SHOWN_FROM]
        return replace(saved, persons=first, question=question if len(first) >= N_SHOWN_FROM else "")

    def _write(self, digest: str, saved: SavedAnswer) -> None:
        expire_s = saved.saved_at + self.ttl_s - self._wall_clock()
        if self._n_waiting >= MAX_WAITING or expire_s <= 0:
            return
        self._fresh[digest] = saved
        written = self._submit(lambda: self._disk.write(digest, saved, expire_s))
        asyncio.wrap_future(written).add_done_callback(lambda _: self._settled(digest, saved))

    def _settled(self, digest: str, saved: SavedAnswer) -> None:
        if self._fresh.get(digest) is saved:
            del self._fresh[digest]

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        self._n_waiting += 1
        future = self._thread.submit(work)
        asyncio.wrap_future(future).add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Result]) -> None:
        self._n_waiting -= 1
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("saved answers: an operation failed: %s", where(error))


class _Disk:
    """The store itself, used by one thread. Nothing here raises for a disk that refuses or a file that is damaged."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._cache: diskcache.Cache | None = None
        self._open_again_at_s = 0.0
        self._is_refusing = False
        self._salt = _salt(directory.with_name("salt"))

    def digest_of(self, person: str) -> str:
        """Names a person here and nowhere else."""
        return hashlib.blake2b(person.encode(), key=self._salt, digest_size=8).hexdigest()

    def read(self, digest: str) -> SavedAnswer | None:
        """The entry, None if there is none."""
        value = self._use(lambda cache: cache.get(digest), None)
        return _unpacked(value)

    def write(self, digest: str, saved: SavedAnswer, expire_s: float) -> None:
        """Keep the entry. What only one person has asked carries a tag to be forgotten by."""
        tag = saved.persons[0] if len(saved.persons) == 1 else None
        self._use(lambda cache: cache.set(digest, _packed(saved), expire=expire_s, tag=tag), None)

    def delete(self, digest: str) -> None:
        """Drop the entry."""
        self._use(lambda cache: cache.delete(digest), None)

    def forget(self, tag: str) -> None:
        """Drop the entries with this tag."""
        self._use(lambda cache: cache.evict(tag), None)

    def expire(self) -> None:
        """Drop what has expired: diskcache itself does so only when it writes."""
        self._use(lambda cache: cache.expire(), None)

    def all(self) -> dict[str, SavedAnswer]:
        """Every entry that can be read."""
        keys: list[str] = self._use(list, [])
        found = {key: self.read(key) for key in keys}
        return {key: saved for key, saved in found.items() if saved is not None}

    def close(self) -> None:
        """Close the files."""
        if self._cache is not None:
            self._cache.close()

    def _use(self, work: Callable[[diskcache.Cache], Result], otherwise: Result) -> Result:
        try:
            if self._cache is None and not self._open():
                return otherwise
            result = work(self._cache)
        except (sqlite3.OperationalError, diskcache.Timeout, OSError) as error:
            self._refused(error)  # locked, full, read-only, gone: it may be well again later
        except (sqlite3.Error, ValueError, TypeError, KeyError):
            self._set_aside()
        else:
            self._is_refusing = False
            return result
        return otherwise

    def _open(self) -> bool:
        """Open the store; after a failure not before _REOPEN_S have passed."""
        if time.monotonic() < self._open_again_at_s:
            return False
        self._open_again_at_s = time.monotonic() + _REOPEN_S
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        self._cache = diskcache.Cache(
            str(self._directory),
            disk=BytesDisk,
            size_limit=self._limit_bytes,
            timeout=_BUSY_S,
            tag_index=True,
            sqlite_secure_delete=1,
        )
        return True

    def _set_aside(self) -> None:
        """The file is damaged: keep it for whoever wants to look, and begin a new one at the next use."""
        self._cache = None
        aside = self._directory.with_name(self._directory.name + ".damaged")
        _log.warning("saved answers on disk are damaged: the file is kept in %s, starting afresh", aside.name)
        try:
            shutil.rmtree(aside, ignore_errors=True)
            self._directory.rename(aside)
            self._open_again_at_s = 0.0
        except OSError as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        if not self._is_refusing:
            _log.warning("saved answers: the disk refused (%s), going on without", type(error).__name__)
        self._is_refusing = True


class _Pins:
    """What the owner pinned, in one file. Read by the loop's thread, written by others, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_digest: dict[str, SavedAnswer] = {}
        try:
            stored = json.loads(path.read_bytes())
            entries = {str(key): _unpacked(json.dumps(value).encode()) for key, value in stored.items()}
            self.by_digest = {key: replace(saved, is_pinned=True) for key, saved in entries.items() if saved}
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError) as error:
            _log.error("%s cannot be read (%s): no answer is pinned", path.name, type(error).__name__)

    def save(self, pins: dict[str, SavedAnswer]) -> None:
        """Replace the file and use it. Raises OSError."""
        write_private(self._path, json.dumps({key: asdict(pin) for key, pin in pins.items()}).encode())
        self.by_digest = pins


def _salt(path: Path) -> bytes:
    """A random key beside the entries: without it a digest cannot be tied to a person, nor to another program's."""
    try:
        salt = path.read_bytes() if path.exists() else b""
        if len(salt) != hashlib.blake2b.MAX_KEY_SIZE:
            salt = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, salt)
        return salt
    except OSError as error:
        _log.warning("saved answers: the disk refused (%s)", type(error).__name__)
        return secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)


def _packed(saved: SavedAnswer) -> bytes:
    return json.dumps(asdict(saved), ensure_ascii=False, separators=(",", ":")).encode()


def _unpacked(value: object) -> SavedAnswer | None:
    """The entry; None for what is no entry of ours."""
    try:
        fields = json.loads(value if isinstance(value, bytes) else b"null")
        ids, persons = tuple(map(int, fields.pop("token_ids"))), tuple(map(str, fields.pop("persons")))
        return SavedAnswer(token_ids=ids, persons=persons, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
