"""How fast one may ask and guess: for each person and for each address, so that one of many behind a proxy cannot use
up what the others have. The owner's browser on this PC waits for nobody but itself; no address is exempt.

Counts are kept in memory: a restart forgets them. Everything here runs on the event loop's thread.
"""

from __future__ import annotations

import math
import time
from typing import Final

from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from appliance.access.passwords import Role
from appliance.access.rights import Caller
from appliance.base.errors import TooFast

_GUESSES_OF_ONE: Final[tuple[RateLimitItem, ...]] = (RateLimitItemPerMinute(5), RateLimitItemPerHour(20))
_GUESSES_OF_AN_ADDRESS: Final[tuple[RateLimitItem, ...]] = (RateLimitItemPerMinute(20), RateLimitItemPerHour(60))
_GUESSES_HERE: Final[tuple[RateLimitItem, ...]] = (RateLimitItemPerSecond(10, 10),)
"""At this PC: never more than ten seconds to wait."""
_MANY_KEYS: Final = 1000

Bucket = tuple[RateLimitItem, str]


class RateLimits:
    """Questions and wrong passwords, each in a moving window."""

    def __init__(
        self, questions_per_minute: int, questions_per_minute_and_address: int, address_share: float = 0
    ) -> None:
        """0: no limit."""
        self.use(questions_per_minute, questions_per_minute_and_address, address_share)
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)

    def use(self, questions_per_minute: int, questions_per_minute_and_address: int, address_share: float = 0) -> None:
        """Other limits; questions are counted from nothing then."""
        self.address_share = address_share
        """Of one core, for throttle.py."""
        self._of_one = questions_per_minute
        self._of_an_address = questions_per_minute_and_address

    def question(self, caller: Caller) -> None:
        """Count one question of a page's person or a program. Raises TooFast; a refused one is not counted."""
        if caller.is_this_pc:
            return
        one = f"person {caller.person}" if caller.kind == "page" else caller.program
        buckets: list[Bucket] = [
            (RateLimitItemPerMinute(amount), f"question {who}")
            for amount, who in ((self._of_one, one), (self._of_an_address, f"address {caller.address}"))
            if amount
        ]
        self._check(buckets)
        self._count(buckets)

    def check_guess(self, role: Role, caller: Caller, browser: str | None) -> None:
        """Raise TooFast after too many wrong passwords. `browser`: one that has known this password before."""
        self._check(_guess_buckets(role, caller, browser))

    def wrong_guess(self, role: Role, caller: Caller, browser: str | None) -> None:
        """Count a wrong password."""
        self._count(_guess_buckets(role, caller, browser))

    def _check(self, buckets: list[Bucket]) -> None:
        waits = [
            self._limiter.get_window_stats(item, who).reset_time - time.time()
            for item, who in buckets
            if not self._limiter.test(item, who)
        ]
        if waits:
            # A clock that was set back must not make anybody wait longer than the window.
            longest = max(item.get_expiry() for item, _ in buckets)
            raise TooFast(min(max(1, math.ceil(max(waits))), longest))

    def _count(self, buckets: list[Bucket]) -> None:
        for item, who in buckets:
            self._limiter.hit(item, who)
        if len(self._storage.events) > _MANY_KEYS:
            # The library drops what is over, but keeps the name of everybody who ever asked.
            for key in [key for key, events in self._storage.events.items() if not events]:
                self._storage.events.pop(key, None)


def _guess_buckets(role: Role, caller: Caller, browser: str | None) -> list[Bucket]:
    """A browser that has logged in before is counted apart: strangers' guesses from its address do not slow it."""
    if caller.is_this_pc:
        return [(item, f"guess {role} here") for item in _GUESSES_HERE]
    kind = "stranger" if browser is None else "known"
    one = browser or caller.person
    buckets = [(item, f"guess {role} {kind} address {caller.address}") for item in _GUESSES_OF_AN_ADDRESS]
    return buckets + [(item, f"guess {role} {kind} one {one}") for item in _GUESSES_OF_ONE if one is not None]
