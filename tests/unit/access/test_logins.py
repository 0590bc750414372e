"""Passwords and logins: hashes in a private file, cookies that outlive a restart and no change of the password."""

from __future__ import annotations

import asyncio
import stat
import sys
import threading

import pytest
from argon2 import PasswordHasher
from itsdangerous import URLSafeSerializer

from appliance.access import passwords
from appliance.access.logins import COOKIE_NAME, Logins
from appliance.access.passwords import PasswordError, Passwords
from appliance.base.errors import Busy, TooFast

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SECRET = b"k" * 32
DAY_S = 86_400


def always() -> None:
    """Nobody has guessed too often."""


@pytest.fixture
def kept(tmp_path):
    kept = Passwords(tmp_path / "passwords.json", QUICK)
    kept.set("person", "open sesame")
    kept.set("admin", "correct horse")
    return kept


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logins(kept, tmp_path, clock):
    return Logins(SECRET, kept, tmp_path / "ended.json", {"person": 30 * DAY_S, "admin": DAY_S / 2}, clock)


def jar(value: str) -> dict[str, str]:
    return {COOKIE_NAME: value}


async def test_each_password_opens_its_own_door(kept):
    assert await kept.matches("person", "open sesame", always)
    assert await kept.matches("admin", " correct horse ", always)
    assert not await kept.matches("admin", "open sesame", always)
    assert not await kept.matches("person", "open sesam", always)
    assert not await kept.matches("person", "", always)
    assert not await kept.matches("person", "x" * 100_000, always)


async def test_full_width_digits_are_the_same_digits(kept):
    kept.set("person", "口令123456")
    assert await kept.matches("person", "口令１２３４５６", always)


async def test_without_a_password_nothing_matches(tmp_path):
    nothing = Passwords(tmp_path / "none.json", QUICK)
    assert not nothing.is_set("person")
    assert not await nothing.matches("person", "", always)


@pytest.mark.parametrize(
    ("role", "text"), [("person", "12345"), ("admin", "1234567"), ("person", " " * 20), ("person", "x" * 201)]
)
def test_a_password_has_a_length(kept, role, text):
    with pytest.raises(PasswordError, match="characters"):
        kept.set(role, text)


def test_the_file_holds_argon2_hashes_and_is_its_owners_alone(kept, tmp_path):
    path = tmp_path / "passwords.json"
    text = path.read_text()
    assert text.count("$argon2id$") == 2
    assert "sesame" not in text
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_one_check_runs_at_a_time_beside_the_loop_and_few_may_wait(kept, monkeypatch):
    running, most, loop_thread = 0, 0, threading.get_ident()
    verify = kept._verify

    def watched(*args):
        nonlocal running, most
        assert threading.get_ident() != loop_thread
        running += 1
        most = max(most, running)
        result = verify(*args)
        running -= 1
        return result

    monkeypatch.setattr(kept, "_verify", watched)
    tries = [kept.matches("person", "open sesame", always) for _ in range(30)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert most == 1
    assert results.count(True) == 1 + passwords.MAX_WAITING
    assert sum(isinstance(result, Busy) for result in results) == 30 - 1 - passwords.MAX_WAITING
    assert await kept.matches("person", "open sesame", always)


async def test_a_guess_whose_turn_comes_too_late_is_not_looked_at(kept):
    def refuse():
        raise TooFast(60)

    with pytest.raises(TooFast):
        await kept.matches("person", "open sesame", refuse)
    assert await kept.matches("person", "open sesame", always)


def test_a_login_outlives_a_restart_and_ends_in_time(logins, kept, tmp_path, clock):
    cookie = jar(logins.issue("person", "ann"))
    again = Logins(SECRET, Passwords(tmp_path / "passwords.json"), tmp_path / "ended.json", logins.lasts_s, clock)
    login = again.of(cookie)
    assert (login.role, login.name) == ("person", "ann")
    clock.now += 30 * DAY_S - 2
    assert again.of(cookie)
    clock.now += 3
    assert again.of(cookie) is None
    assert again.knew("person", cookie)
    assert again.knew("admin", cookie) is None


def test_the_admins_login_is_shorter(logins, clock):
    cookie = jar(logins.issue("admin"))
    assert logins.of(cookie).role == "admin"
    clock.now += DAY_S / 2 + 1
    assert logins.of(cookie) is None


def test_another_password_ends_the_logins_of_its_role_alone(logins, kept):
    person, admin = jar(logins.issue("person")), jar(logins.issue("admin"))
    kept.set("person", "open sesame")  # the same words again: still a new one
    assert logins.of(person) is None
    assert logins.of(admin)


def test_a_logout_counts_for_copies_of_the_cookie_and_after_a_restart(logins, kept, tmp_path, clock):
    here, elsewhere = jar(logins.issue("person")), jar(logins.issue("person"))
    logins.end(logins.of(here))
    assert logins.of(here) is None
    assert logins.of(elsewhere)
    again = Logins(SECRET, kept, tmp_path / "ended.json", logins.lasts_s, clock)
    assert again.of(here) is None
    clock.now += 31 * DAY_S
    logins.end(logins.of(jar(logins.issue("person"))))
    assert len((tmp_path / "ended.json").read_text().split(":")) == 2, "what has ended by itself is not kept"


@pytest.mark.parametrize("value", ["", "x", "a.b", "名.字", "." * 500])
def test_a_made_up_cookie_is_no_login(logins, value):
    assert logins.of(jar(value)) is None
    assert logins.knew("person", jar(value)) is None


def test_a_login_of_another_secret_from_the_future_or_of_another_shape_is_none(logins, kept, tmp_path, clock):
    other = Logins(b"j" * 32, kept, tmp_path / "ended.json", logins.lasts_s, clock)
    assert logins.of(jar(other.issue("person"))) is None
    early = jar(logins.issue("person"))
    clock.now -= 10
    assert logins.of(early) is None
    signer = URLSafeSerializer(SECRET, salt="office-chat login")
    for wrong in ([], {}, "text", ["person", "", "id", 1]):
        assert logins.of(jar(signer.dumps(wrong))) is None
