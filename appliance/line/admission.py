"""Who gets in: one bound for page and API, tickets for people in Gradio's queue, and the line before the engine.

Everything here runs on the loop's thread and never awaits between a check and its effect: that makes bursts exact.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.base.errors import AlreadyAnswering, Busy, Overloaded, SavedOnly
from appliance.line.load_shedding import LoadLevel

Key = tuple[str, str]
"""(person, tab): one conversation of one person."""

NEVER_SEEN_S = 2.0
"""A ticket whose event has not shown up in the queue, nor as a running answer, for so long is void."""
LEFT_QUEUE_S = 1.0
"""The same once it had been seen there: between leaving the queue and starting lie milliseconds."""


@dataclass
class _Ticket:
    """A place promised by the validator. `missing_since` is None while its event is seen waiting."""

    taken_at: float
    missing_since: float | None
    seen: bool = False


class Valve(Protocol):
    """What of load shedding decides here; see load_shedding.py."""

    @property
    def level(self) -> LoadLevel:
        """Where we are."""

    def takes_for_model(self) -> bool:
        """Whether a new question may go to the model."""

    def takes_anything(self) -> bool:
        """Whether anything new may come in."""

    def sent_away(self, person: str) -> None:
        """Somebody was told to come back."""

    def taken(self, person: str) -> None:
        """Somebody was let in."""


class _Open:
    """Nothing is shed, ever."""

    level = LoadLevel.NORMAL

    def takes_for_model(self) -> bool:
        return True

    def takes_anything(self) -> bool:
        return True

    def sent_away(self, person: str) -> None:
        """Nobody keeps count."""

    def taken(self, person: str) -> None:
        """Nobody keeps count."""


class Place:
    """One answer's place. `release` may be called any number of times."""

    def __init__(self, admission: Admission, key: Key | None, asked_at: float, *, takes_room: bool) -> None:
        """`key`: whose answer it is. `takes_room`: whether it counts against the capacity, or only for its person.

        `asked_at`: when it was asked for, by the admission's clock; a ticket may have come first.
        """
        self._admission = admission
        self.key = key
        self.asked_at = asked_at
        self.takes_room = takes_room

    def hand_over_room(self) -> Place:
        """Its room as a place of nobody's: a generation that others read too outlives the answer it was begun for."""
        assert self.takes_room
        self.takes_room = False
        return self._admission._give(None)

    def release(self) -> None:
        """Give the place back."""
        self._admission._release(self)


class Admission:
    """Counts places: tickets (page, not started) and places (page and API, in hand) never exceed `capacity`."""

    def __init__(
        self, capacity: int, max_per_person: int, clock: Callable[[], float], load_shedding: Valve | None = None
    ) -> None:
        """`load_shedding` may keep the door shut although there are places, and hears of everybody who is sent away."""
        self._capacity = capacity
        self._load_shedding = load_shedding or _Open()
        self._max_per_person = max_per_person
        self._clock = clock
        self._waiting: Callable[[], Sequence[Key]] = _nobody
        self._tickets: dict[Key, _Ticket] = {}
        self._places: set[Place] = set()

    def use(self, capacity: int, max_per_person: int) -> None:
        """Other bounds; who is in stays in."""
        self._capacity = capacity
        self._max_per_person = max_per_person

    def watch_queue(self, waiting: Callable[[], Sequence[Key]]) -> None:
        """Name the function that tells whose events wait in the page's queue, in order."""
        self._waiting = waiting

    @property
    def n_taken(self) -> int:
        """Tickets and places now given out, without those that take no room."""
        return len(self._tickets) + sum(place.takes_room for place in self._places)

    @property
    def n_tickets(self) -> int:
        """People let in whose answer has not begun."""
        return len(self._tickets)

    def rank(self, key: Key) -> int | None:
        """How many wait before this one in the page's queue; None if it does not wait there."""
        waiting = list(self._waiting())
        return waiting.index(key) if key in waiting else None

    def enter_page(self, key: Key) -> None:
        """The validator's question: take a ticket, or raise Busy or AlreadyAnswering."""
        self.sweep()
        old = self._tickets.get(key)
        if old is not None and old.seen and old.missing_since is not None:
            # Its event has left the queue without starting: the tab was reloaded and asks anew.
            del self._tickets[key]
        self._check_person(key)
        self._check_room(key[0])
        now = self._clock()
        self._tickets[key] = _Ticket(now, missing_since=now)

    def start_page(self, key: Key) -> Place:
        """The handler begins: its ticket becomes a place. One that came too late for its ticket needs a free place."""
        ticket = self._tickets.pop(key, None)
        self._check_person(key)
        if ticket is None:
            self.sweep()
            self._check_room(key[0])
        return self._give(key, ticket)

    def join(self, key: Key | None) -> Place:
        """A place for an answer the engine has no work with: it counts for its person and takes no room."""
        ticket = None
        if key is not None:
            ticket = self._tickets.pop(key, None)
        if ticket is None:
            self.check_join(key)
        elif key is not None:
            self._check_person(key)
        return self._give(key, ticket, takes_room=False)

    def check_join(self, key: Key | None) -> None:
        """Raise AlreadyAnswering or Overloaded where even an answer that costs nothing is not given."""
        if key is not None:
            self._check_person(key)
        if not self._load_shedding.takes_anything():
            if key is not None:
                self._load_shedding.sent_away(key[0])
            raise Overloaded("too many ask")

    def start_api(self, person: str) -> Place:
        """A place for a program at once, or Busy: it has no queue to wait in before the engine's."""
        self.sweep()
        self._check_room(person)
        return self._give(None)

    def drop_ticket(self, key: Key) -> None:
        """The person gave up while waiting."""
        self._tickets.pop(key, None)

    def sweep(self) -> None:
        """Void the tickets whose event is gone. Called at every question and twice a second."""
        if not self._tickets:
            return
        now = self._clock()
        waiting = set(self._waiting())
        for key, ticket in list(self._tickets.items()):
            if key in waiting:
                ticket.seen, ticket.missing_since = True, None
            elif ticket.missing_since is None:
                ticket.missing_since = now
            elif now - ticket.missing_since >= (LEFT_QUEUE_S if ticket.seen else NEVER_SEEN_S):
                del self._tickets[key]

    def _check_person(self, key: Key) -> None:
        """Raise AlreadyAnswering where this tab has an answer in hand, or its person as many as one may have."""
        held = Counter(place.key[0] for place in self._places if place.key is not None)
        held.update(person for person, _ in self._tickets)
        same_tab = key in self._tickets or any(place.key == key for place in self._places)
        if same_tab or held[key[0]] >= self._max_per_person:
            raise AlreadyAnswering("this conversation, or this person, is being answered already")

    def _check_room(self, person: str) -> None:
        is_full = self.n_taken >= self._capacity
        if not is_full and self._load_shedding.takes_for_model():
            self._load_shedding.taken(person)
            return
        self._load_shedding.sent_away(person)
        if is_full:
            raise Busy(f"all {self._capacity} places are taken")
        raise Overloaded("too many ask") if self._load_shedding.level is LoadLevel.BUSY else SavedOnly("too many ask")

    def _give(self, key: Key | None, ticket: _Ticket | None = None, *, takes_room: bool = True) -> Place:
        place = Place(self, key, self._clock() if ticket is None else ticket.taken_at, takes_room=takes_room)
        self._places.add(place)
        return place

    def _release(self, place: Place) -> None:
        self._places.discard(place)


class Gate:
    """The line before the engine, first come first served: the engine holds no more than it can put in order."""

    def __init__(self, n_places: int) -> None:
        self._n_places = n_places
        self._inside: set[GateTurn] = set()
        self._line: list[GateTurn] = []

    @property
    def n_waiting(self) -> int:
        """How many stand in the line."""
        return len(self._line)

    def resize(self, n_places: int) -> None:
        """Another bound, from the next turn on: who is inside stays."""
        self._n_places = n_places
        self._advance()

    def join(self, n_waiting_behind: Callable[[], int]) -> GateTurn:
        """Stand in line; `n_waiting_behind` counts those who wait beyond the gate."""
        turn = GateTurn(self, n_waiting_behind)
        self._line.append(turn)
        self._advance()
        return turn

    def _leave(self, turn: GateTurn) -> None:
        self._inside.discard(turn)
        if turn in self._line:
            self._line.remove(turn)
        self._advance()

    def _advance(self) -> None:
        while self._line and len(self._inside) < self._n_places:
            turn = self._line.pop(0)
            self._inside.add(turn)
            turn._open()

    def _position(self, turn: GateTurn) -> int:
        return self._line.index(turn) if turn in self._line else 0


class GateTurn:
    """One answer's turn at the gate."""

    def __init__(self, gate: Gate, n_waiting_behind: Callable[[], int]) -> None:
        self._gate = gate
        self._n_waiting_behind = n_waiting_behind
        self._opened = asyncio.Event()
        self._given_up = False

    @property
    def ahead(self) -> int:
        """How many are served before this one."""
        return self._gate._position(self) + self._n_waiting_behind()

    async def reached(self) -> bool:
        """Wait for the turn; False when it was given up instead."""
        await self._opened.wait()
        return not self._given_up

    def abort(self) -> None:
        """Give the turn up; the wait ends at once."""
        self._given_up = True
        self._opened.set()

    def leave(self) -> None:
        """Let the next one in. May be called any number of times."""
        self._gate._leave(self)

    def _open(self) -> None:
        self._opened.set()


def _nobody() -> Sequence[Key]:
    return ()
