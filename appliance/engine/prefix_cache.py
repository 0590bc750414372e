"""KV state that need not be computed again: the shared system prompt, and conversations between two turns.

A parked conversation belongs to one person and one conversation, and is given back to nobody else. It is kept in RAM,
least recently parked out first, then on disk, and dropped at the time to live. What is reused is the longest
common beginning of token ids, so an edited or repeated question recomputes only what changed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_MAX_SHARED = 8
"""System prompts kept at once: the owner's, and those that programs bring along."""


@dataclass(frozen=True)
class Owner:
    """Whose KV state it is, as digests: neither a name nor a conversation can be read from them."""

    person: str
    conversation: str

    @classmethod
    def of(cls, person: str, conversation: str) -> Owner:
        """Digests of the web side's own ids."""
        return cls(_digest(person), _digest(f"{person}\0{conversation}"))


@dataclass(frozen=True)
class KvState:
    """The state of the first `len(token_ids)` cells of a sequence, as llama.cpp wrote it."""

    owner: Owner | None
    """None for a shared system prompt."""
    token_ids: NDArray[np.int32]
    data: NDArray[np.uint8]
    expires_at: float
    """Wall clock, seconds since 1970."""


class Shelf(Protocol):
    """Where states go that RAM has no room for."""

    def put(self, state: KvState) -> None:
        """Keep it, replacing what the same conversation had there."""

    def peek(self, owner: Owner) -> NDArray[np.int32] | None:
        """The token ids of what it has, without reading the state."""

    def take(self, owner: Owner) -> KvState | None:
        """Hand it out and forget it."""

    def drop_conversation(self, owner: Owner) -> None:
        """Forget one conversation."""

    def drop_person(self, person: str) -> None:
        """Forget all of a person's; `person` is the digest."""

    def close(self) -> None:
        """Finish writing."""


class PrefixCache:
    """Owned by the engine's thread."""

    def __init__(self, *, ram_bytes: int, ttl_s: float, shelf: Shelf | None, wall_clock: Callable[[], float]) -> None:
        self._ram_bytes = ram_bytes
        self._ttl_s = ttl_s
        self._shelf = shelf
        self._wall_clock = wall_clock
        self._parked: OrderedDict[str, KvState] = OrderedDict()
        self._on_shelf_too: set[str] = set()
        self._shared: OrderedDict[tuple[int, ...], KvState] = OrderedDict()
        self.n_bytes = 0
        """Parked in RAM."""

    def __len__(self) -> int:
        return len(self._parked)

    def share(self, token_ids: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Keep the state of a system prompt for everybody."""
        key = tuple(token_ids)
        self._shared[key] = KvState(None, np.asarray(key, dtype=np.int32), data, float("inf"))
        if len(self._shared) > _MAX_SHARED:
            self._shared.popitem(last=False)

    def shared(self, token_ids: Sequence[int]) -> KvState | None:
        """The state of exactly this system prompt."""
        key = tuple(token_ids)
        if key in self._shared:
            self._shared.move_to_end(key)
        return self._shared.get(key)

    def park(self, owner: Owner, token_ids: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Keep a conversation until its next turn."""
        self._pop(owner)
        state = KvState(owner, np.asarray(token_ids, dtype=np.int32), data, self._wall_clock() + self._ttl_s)
        self._parked[owner.conversation] = state
        self.n_bytes += data.nbytes
        self.sweep()
        while self.n_bytes > self._ram_bytes:
            oldest = next(iter(self._parked.values()))
            self._persist(oldest)
            self._forget_in_ram(oldest)

    def n_reusable(self, owner: Owner, token_ids: Sequence[int]) -> int:
        """How many of these tokens `take` would spare computing."""
        state = self._parked.get(owner.conversation)
        if state is not None:
            return n_common(state.token_ids, token_ids) if self._is_good(state, owner) else 0
        parked_ids = self._shelf.peek(owner) if self._shelf is not None else None
        return 0 if parked_ids is None else n_common(parked_ids, token_ids)

    def take(self, owner: Owner) -> KvState | None:
        """Hand out a conversation's state and forget it; None when there is none, or it is somebody else's."""
        state = self._pop(owner)
        if state is None and self._shelf is not None:
            state = self._shelf.take(owner)
        return state if state is not None and self._is_good(state, owner) else None

    def drop_conversation(self, owner: Owner) -> None:
        """Forget a conversation, in RAM and on disk."""
        if self._pop(owner) is None and self._shelf is not None:
            self._shelf.drop_conversation(owner)

    def drop_person(self, owner: Owner) -> None:
        """Forget everything of a person, in RAM and on disk."""
        for state in [s for s in self._parked.values() if s.owner is not None and s.owner.person == owner.person]:
            self._forget_in_ram(state)
        if self._shelf is not None:
            self._shelf.drop_person(owner.person)

    def sweep(self) -> None:
        """Drop what has expired in RAM; the shelf drops its own."""
        now = self._wall_clock()
        for state in [s for s in self._parked.values() if s.expires_at <= now]:
            self._forget_in_ram(state)

    def persist_one(self) -> bool:
        """Copy one state to disk, so that it outlives this process; False when all are there."""
        todo = next((s for k, s in self._parked.items() if k not in self._on_shelf_too), None)
        if todo is None or self._shelf is None:
            return False
        self._persist(todo)
        return True

    def close(self) -> None:
        """Copy what is in RAM to disk, the newest first."""
        for state in reversed(self._parked.values()):
            self._persist(state)
        if self._shelf is not None:
            self._shelf.close()

    def _is_good(self, state: KvState, owner: Owner) -> bool:
        return state.owner == owner and state.expires_at > self._wall_clock()

    def _persist(self, state: KvState) -> None:
        assert state.owner is not None
        if self._shelf is not None and state.owner.conversation not in self._on_shelf_too:
            self._shelf.put(state)
            self._on_shelf_too.add(state.owner.conversation)

    def _pop(self, owner: Owner) -> KvState | None:
        """Out of RAM, and its copy off the disk."""
        state = self._parked.get(owner.conversation)
        if state is None:
            return None
        if owner.conversation in self._on_shelf_too and self._shelf is not None:
            self._shelf.drop_conversation(owner)
        self._forget_in_ram(state)
        return state

    def _forget_in_ram(self, state: KvState) -> None:
        assert state.owner is not None
        del self._parked[state.owner.conversation]
        self._on_shelf_too.discard(state.owner.conversation)
        self.n_bytes -= state.data.nbytes


def n_common(parked_ids: NDArray[np.int32], token_ids: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    other = np.asarray(token_ids[: len(parked_ids)], dtype=np.int32)
    different = np.flatnonzero(parked_ids[: len(other)] != other)
    return int(different[0]) if len(different) else len(other)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
