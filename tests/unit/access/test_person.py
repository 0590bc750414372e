"""Who asks: cookies that prove something, tabs that are well formed, secrets that stay."""

from __future__ import annotations

import stat
import sys

import pytest

from appliance.access.person import COOKIE_NAME, Persons, load_secret
from appliance.base.errors import StartFailed

PERSONS = Persons(b"k" * 32)


def test_an_issued_cookie_proves_the_same_person_every_time():
    cookie = PERSONS.issue()
    person = PERSONS.of({COOKIE_NAME: cookie})
    assert person
    assert PERSONS.of({COOKIE_NAME: cookie}) == person
    assert PERSONS.of({COOKIE_NAME: PERSONS.issue()}) != person


@pytest.mark.parametrize("value", ["", "x", "x.y", "名.字", "." * 500])
def test_a_made_up_cookie_proves_nothing(value):
    assert PERSONS.of({COOKIE_NAME: value}) is None


def test_a_changed_or_foreign_cookie_proves_nothing():
    cookie = PERSONS.issue()
    assert PERSONS.of({COOKIE_NAME: "A" + cookie}) is None
    assert Persons(b"j" * 32).of({COOKIE_NAME: cookie}) is None
    assert PERSONS.of({}) is None


@pytest.mark.parametrize(
    ("tab", "ok"), [("a" * 16, True), ("a" * 15, False), ("a" * 65, False), ("a" * 15 + "/", False)]
)
def test_a_tab_must_be_well_formed(tab, ok):
    assert (PERSONS.tab_of({"x-tab": tab}) == tab) is ok
    assert PERSONS.tab_of({}) is None


def test_the_secret_survives_a_restart_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "secret.key"
    secret = load_secret(path)
    assert len(secret) == 32
    assert load_secret(path) == secret
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_secret_is_made_anew(tmp_path):
    (tmp_path / "secret.key").write_bytes(b"short")
    assert len(load_secret(tmp_path / "secret.key")) == 32


def test_a_secret_that_cannot_be_had_is_named(tmp_path):
    (tmp_path / "secret.key").mkdir()
    with pytest.raises(StartFailed, match=r"secret\.key"):
        load_secret(tmp_path / "secret.key")
