"""How fast one may ask and guess, with the clock in the test's hand."""

from __future__ import annotations

import time

import pytest

from appliance.access import rate_limits
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Caller
from appliance.base.errors import TooFast


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def caller(
    person: str | None = None, address: str = "192.168.1.7", key: str | None = None, here: bool = False
) -> Caller:
    return Caller(address, is_loopback=here, is_this_pc=here, person=person, login=None, key_name=key, is_admin=False)


def n_taken(limits: RateLimits, who: Caller, n_tries: int) -> int:
    taken = 0
    for _ in range(n_tries):
        try:
            limits.question(who)
            taken += 1
        except TooFast:
            break
    return taken


def test_one_person_may_ask_so_many_questions_a_minute(clock):
    limits = RateLimits(3, 0)
    assert n_taken(limits, caller("ann"), 9) == 3
    assert n_taken(limits, caller("bob"), 9) == 3
    clock.now += 20
    with pytest.raises(TooFast) as refused:
        limits.question(caller("ann"))
    assert refused.value.wait_s == 40
    assert refused.value.values == {"seconds": 40}
    clock.now += 40.1
    assert n_taken(limits, caller("ann"), 9) == 3


def test_a_window_moves(clock):
    limits = RateLimits(2, 0)
    limits.question(caller("ann"))
    clock.now += 40
    limits.question(caller("ann"))
    clock.now += 20.1
    assert n_taken(limits, caller("ann"), 9) == 1


def test_refused_questions_do_not_prolong_the_wait(clock):
    limits = RateLimits(2, 0)
    assert n_taken(limits, caller("ann"), 2) == 2
    clock.now += 59
    assert n_taken(limits, caller("ann"), 50) == 0
    clock.now += 1.1
    assert n_taken(limits, caller("ann"), 2) == 2


def test_new_cookies_do_not_get_round_the_limit_of_the_address(clock):
    limits = RateLimits(3, 10)
    assert sum(n_taken(limits, caller(f"new {i}"), 1) for i in range(50)) == 10
    assert n_taken(limits, caller("elsewhere", address="192.168.1.8"), 3) == 3


def test_a_key_counts_for_itself_and_this_pc_not_at_all(clock):
    limits = RateLimits(3, 0)
    assert n_taken(limits, caller(key="ann"), 9) == 3
    assert n_taken(limits, caller(key="bob"), 9) == 3
    assert n_taken(limits, caller("owner", here=True), 500) == 500


def test_zero_is_no_limit(clock):
    assert n_taken(RateLimits(0, 0), caller("ann"), 500) == 500


def guesses(limits: RateLimits, who: Caller, n: int, role: str = "person", browser: str | None = None) -> int:
    """How many of `n` wrong passwords were looked at."""
    looked_at = 0
    for _ in range(n):
        try:
            limits.check_guess(role, who, browser)
        except TooFast:
            continue
        limits.wrong_guess(role, who, browser)
        looked_at += 1
    return looked_at


def test_wrong_passwords_are_slowed_by_the_minute_and_by_the_hour(clock):
    limits = RateLimits(0, 0)
    assert guesses(limits, caller(), 100) == 20
    in_an_hour = 20
    for _ in range(59):
        clock.now += 60.1
        in_an_hour += guesses(limits, caller(), 100)
    assert in_an_hour == 60
    with pytest.raises(TooFast) as refused:
        limits.check_guess("person", caller(), None)
    assert 1 <= refused.value.wait_s <= 3600


def test_a_colleague_at_the_guessers_address_who_has_logged_in_before_is_not_slowed(clock):
    limits = RateLimits(0, 0)
    guesses(limits, caller(), 100)
    limits.check_guess("person", caller(), "the id of an old login")
    limits.check_guess("admin", caller(), None)
    assert guesses(limits, caller(), 100, browser="the id of an old login") == 5
    assert sum(guesses(limits, caller(), 100, browser=f"collected {i}") for i in range(50)) == 15


def test_others_never_lock_this_pc_out_and_it_waits_ten_seconds_at_most(clock):
    limits = RateLimits(0, 0)
    guesses(limits, caller(address="127.0.0.1"), 100, "admin")
    here = caller(address="127.0.0.1", here=True)
    assert guesses(limits, here, 100, "admin") == 10
    with pytest.raises(TooFast) as refused:
        limits.check_guess("admin", here, None)
    assert refused.value.wait_s <= 10


def test_a_clock_that_is_set_back_locks_nobody_out_for_long(clock):
    limits = RateLimits(1, 0)
    limits.question(caller("ann"))
    clock.now -= 86_400
    with pytest.raises(TooFast) as refused:
        limits.question(caller("ann"))
    assert refused.value.wait_s <= 60


def test_those_who_have_stopped_asking_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(rate_limits, "_MANY_KEYS", 50)
    limits = RateLimits(3, 0)
    for i in range(300):
        limits.question(caller(f"person {i}"))
        clock.now += 10
        for key in list(limits._storage.events):
            # What the library's own timer does a moment later.
            limits._storage.events[key] = [entry for entry in limits._storage.events[key] if entry.expiry > clock.now]
    assert len(limits._storage.events) <= 51
