"""Conversations by (person, tab): what was asked and answered, kept until its TTL. Belongs to the loop's thread."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from appliance.answers.answer import Answer, Origin
from appliance.engine.request import FinishReason, Message
from appliance.line.admission import Key
from appliance.metrics.health import give_back_memory

Verdict = Literal["", "good", "bad"]

MAX_SESSIONS = 2000
"""Conversations kept at most; the longest unused one without a running answer goes first."""
MAX_TURNS = 200
"""Turns kept of one conversation; no model here reads that far back."""


_MUCH_BYTES = 4 * 2**20
"""Dropped at once, it is worth asking the system to take memory back."""


@dataclass(frozen=True)
class Room:
    """How many bytes of conversations are kept: of one person, of those that came back from one address, of all."""

    person: int = 4 * 2**20
    address: int = 16 * 2**20
    total: int = 64 * 2**20


@dataclass(frozen=True)
class Turn:
    """One question with its answer as far as it got."""

    question: str
    text: str
    token_ids: tuple[int, ...]
    """What the text was generated as; empty for one that came back from a browser."""
    finish: FinishReason | None
    error: str = ""
    """For ERROR: the code of an appliance error."""
    notices: tuple[str, ...] = ()
    origin: Origin = Origin.MODEL
    saved_at: float | None = None
    """For a saved answer: when it was written, Unix time in s."""
    verdict: Verdict = ""
    """What its reader thinks of the answer."""

    @classmethod
    def of(cls, answer: Answer) -> Turn:
        """What an answer that is over leaves in its conversation."""
        return cls(
            answer.question,
            answer.text,
            answer.token_ids,
            answer.finish,
            answer.error,
            answer.notices,
            answer.origin,
            answer.saved_at,
        )

    @property
    def n_bytes(self) -> int:
        """Memory it takes, nearly: one emoji makes every character of its text take four bytes."""
        return 500 + sys.getsizeof(self.question) + sys.getsizeof(self.text) + 36 * len(self.token_ids)

    @property
    def is_history(self) -> bool:
        """Whether the model is told of it: not of what was never answered, nor of what the block list took out, nor of
        quick answers: whoever says hello first still asks a conversation's first question, which many share."""
        return bool(self.text) and self.origin not in (Origin.BLOCKED, Origin.QUICK)

    @property
    def can_continue(self) -> bool:
        """Whether the answer has a beginning but no end of its own."""
        return self.is_history and self.finish is not FinishReason.STOP and self.error != "context_full"


@dataclass(frozen=True)
class Conversation:
    """What a page shows of a session."""

    turns: tuple[Turn, ...] = ()
    running: Answer | None = None

    @property
    def can_continue(self) -> bool:
        """Whether Continue makes sense for the last answer."""
        return self.running is None and bool(self.turns) and self.turns[-1].can_continue


@dataclass
class Session:
    """One conversation. Changed by ChatService alone."""

    last_used: float
    turns: list[Turn] = field(default_factory=list)
    running: Answer | None = None
    n_forgotten_turns: int = 0
    """Oldest turns that no longer fit into the context and are not sent any more."""
    is_after_expiry: bool = False
    """The tab may still show an earlier conversation, which has been forgotten."""
    address: str = ""
    """Where a conversation came back from that its browser had kept; a cookie is free to make."""

    n_bytes: int = 0
    """Memory that the turns take, nearly."""

    def history(self, n_without: int = 0) -> list[Message]:
        """The turns the engine is sent: user and assistant in alternation.

        Args:
            n_without: leave out so many of the newest.
        """
        messages: list[Message] = []
        n_turns = max(0, len(self.turns) - n_without)
        # Cut to before what was forgotten, the rest may fit again.
        n_forgotten = self.n_forgotten_turns if self.n_forgotten_turns <= n_turns else 0
        for turn in self.turns[n_forgotten:n_turns]:
            if turn.is_history:
                messages.append(Message("user", turn.question))
                messages.append(Message("assistant", turn.text, turn.token_ids or None))
        return messages

    def forget_messages(self, n_messages: int) -> None:
        """The engine left out this many of the oldest messages of `history()`: do not send them again."""
        while n_messages > 0 and self.n_forgotten_turns < len(self.turns):
            if self.turns[self.n_forgotten_turns].is_history:
                n_messages -= 2
            self.n_forgotten_turns += 1

    def settle(self, answer: Answer, now: float) -> None:
        """The running answer is over: keep what was written, however it ended."""
        if answer.started is not None:
            self.forget_messages(answer.started.n_dropped_messages)
        self.commit(Turn.of(answer))
        self.running = None
        self.last_used = now

    def take_expired(self) -> bool:
        """Whether the person is to be told that an earlier conversation was forgotten; once."""
        is_news, self.is_after_expiry = self.is_after_expiry, False
        return is_news

    def commit(self, turn: Turn) -> None:
        """Add a finished turn."""
        self.turns.append(turn)
        self.n_bytes += turn.n_bytes
        if len(self.turns) > MAX_TURNS:
            self.n_bytes -= self.turns.pop(0).n_bytes
            self.n_forgotten_turns = max(0, self.n_forgotten_turns - 1)

    def take_back(self, n_turns: int) -> None:
        """Remove so many of the newest turns."""
        self.use(self.turns[: max(0, len(self.turns) - n_turns)])
        if self.n_forgotten_turns > len(self.turns):
            self.n_forgotten_turns = 0

    def drop_token_ids(self) -> None:
        """Keep the texts only: another model's tokens are others."""
        self.use([replace(turn, token_ids=()) for turn in self.turns])

    def use(self, turns: Sequence[Turn]) -> None:
        """Let these be the conversation."""
        self.turns = list(turns)
        self.n_bytes = sum(turn.n_bytes for turn in self.turns)

    def rate(self, index: int, verdict: Verdict) -> Verdict:
        """Note what the reader thinks of an answer; gives what was noted before.

        Raises IndexError: there is no such turn.
        """
        before = self.turns[index].verdict
        self.turns[index] = replace(self.turns[index], verdict=verdict)
        return before


class SessionStore:
    """Sessions by key. The clock is passed in, in seconds."""

    def __init__(
        self, ttl_s: float, clock: Callable[[], float], forget: Callable[[str, str], None], room: Room | None = None
    ) -> None:
        """`forget`: told person and tab of every session that is dropped, for whatever is kept of it elsewhere."""
        self.ttl_s = ttl_s
        self._room = room or Room()
        self._clock = clock
        self._forget = forget
        self._sessions: dict[Key, Session] = {}
        self._expired: OrderedDict[Key, None] = OrderedDict()
        """Tabs whose conversation was forgotten and who have not been told: names only."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: Key) -> Session | None:
        """The session, its TTL begun anew; None if there is none."""
        session = self._sessions.get(key)
        if session is not None:
            session.last_used = self._clock()
        return session

    def peek(self, key: Key) -> Session | None:
        """The session without touching it."""
        return self._sessions.get(key)

    def open(self, key: Key) -> Session:
        """The session, made if need be."""
        session = self.find(key)
        if session is None:
            self._make_room()
            was_expired = key in self._expired
            self._expired.pop(key, None)
            session = self._sessions[key] = Session(last_used=self._clock(), is_after_expiry=was_expired)
        return session

    def put_back(self, key: Key, turns: Sequence[Turn], address: str = "") -> None:
        """Take a conversation its browser has kept, unless there is one here. It begins as if it had been idle.

        Where this person, that address or all have more than is kept of them, the longest unused conversations of
        theirs go: their browsers have them, and put them back with the next question.
        """
        session = self.open(key)
        if session.turns or session.running is not None:
            return
        session.use(turns[-MAX_TURNS:])
        session.is_after_expiry = False
        session.address = address
        self._keep_within(self._room.person, key, person=key[0])
        self._keep_within(self._room.address, key, address=address)
        self._keep_within(self._room.total, key)

    def forgotten_in_s(self, key: Key) -> float:
        """How long until this conversation is forgotten, if nobody touches it. Looking does not touch it."""
        session = self._sessions.get(key)
        return 0.0 if session is None else max(0.0, session.last_used + self.ttl_s - self._clock())

    def drop(self, key: Key) -> None:
        """Forget the conversation, here and elsewhere."""
        self._sessions.pop(key, None)
        self._expired.pop(key, None)
        if all(key):
            self._forget(*key)

    def drop_token_ids(self) -> None:
        """In every conversation: another model answers from now on."""
        for session in self._sessions.values():
            session.drop_token_ids()

    def unused_s(self) -> dict[Key, float]:
        """Every conversation, and how long nobody has touched it, in seconds. Looking does not touch it."""
        now = self._clock()
        return {key: now - session.last_used for key, session in self._sessions.items()}

    def of_person(self, person: str) -> list[Key]:
        """The keys of one person's conversations."""
        return [key for key in self._sessions if key[0] == person]

    def sweep(self) -> None:
        """Drop what was not used for the TTL, and what there is no room for."""
        now, n_before = self._clock(), self.n_bytes
        for key, session in list(self._sessions.items()):
            if session.running is None and now - session.last_used >= self.ttl_s:
                self._expire(key)
        n_bytes: Counter[str] = Counter()
        for (person, _), session in self._sessions.items():
            n_bytes[person] += session.n_bytes
        for person, n in n_bytes.items():
            if person and n > self._room.person:
                self._keep_within(self._room.person, person=person)
        self._keep_within(self._room.total)
        if n_before - self.n_bytes > _MUCH_BYTES:
            give_back_memory()

    @property
    def n_bytes(self) -> int:
        """Memory that all conversations take, nearly."""
        return sum(session.n_bytes for session in self._sessions.values())

    def _make_room(self) -> None:
        if len(self._sessions) < MAX_SESSIONS:
            return
        idle = [(session.last_used, key) for key, session in self._sessions.items() if session.running is None]
        if idle:
            self._expire(min(idle)[1])

    def _keep_within(self, limit_bytes: int, newest: Key | None = None, *, person: str = "", address: str = "") -> None:
        """Expire the longest unused of this person, this address or all, but not the newest nor one in use."""
        counted = [
            (session.last_used, key)
            for key, session in self._sessions.items()
            if person in ("", key[0]) and address in ("", session.address)
        ]
        n_over = sum(self._sessions[key].n_bytes for _, key in counted) - limit_bytes
        for _, key in sorted(counted):
            if n_over <= 0:
                return
            if key != newest and self._sessions[key].running is None:
                n_over -= self._sessions[key].n_bytes
                self._expire(key)

    def _expire(self, key: Key) -> None:
        had_turns = bool(self._sessions[key].turns)
        self.drop(key)
        if had_turns:
            self._expired[key] = None
            if len(self._expired) > MAX_SESSIONS:
                self._expired.popitem(last=False)


def program_conversation(messages: Sequence[Message]) -> str:
    """Names a program's conversation by what never changes in it: everything up to its first question."""
    n_first = next(i for i, message in enumerate(messages) if message.role == "user") + 1
    texts = "\0".join(message.text for message in messages[:n_first])
    return hashlib.sha256(texts.encode("utf-8", errors="replace")).hexdigest()
