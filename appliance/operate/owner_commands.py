"""What the owner does on the terminal beside the running program: passwords, API keys, tuning the model."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.access.api_keys import ApiKeys
from appliance.access.passwords import MIN_CHARS, PasswordError, Passwords, Role
from appliance.access.this_pc import new_link
from appliance.base.paths import Paths
from appliance.network.front_door import FrontDoor
from appliance.settings.schema import Settings

Say = Callable[[str], None]


@dataclass(frozen=True)
class Command:
    """`run` raises ApplianceError with a sentence."""

    help: str
    run: Callable[[Settings, Paths, argparse.Namespace, Say], None]
    takes_name: bool = False
    takes_model: bool = False


def _set_passcode(_settings: Settings, paths: Paths, _given: argparse.Namespace, say: Say) -> None:
    Passwords(paths.passwords).set("person", _read_password("person"))
    say("The passcode is set. Whoever had logged in with another one has to log in again.")
    say("It is asked for when access = passcode is set.")


def _set_admin_password(_settings: Settings, paths: Paths, _given: argparse.Namespace, say: Say) -> None:
    Passwords(paths.passwords).set("admin", _read_password("admin"))
    say("The admin password is set.")


def _add_key(_settings: Settings, paths: Paths, given: argparse.Namespace, say: Say) -> None:
    key = ApiKeys(paths.api_keys).add(given.name)
    say(key)
    say("This is the only time it is shown. Programs send it as: Authorization: Bearer <key>")


def _list_keys(_settings: Settings, paths: Paths, _given: argparse.Namespace, say: Say) -> None:
    keys = ApiKeys(paths.api_keys).listed()
    for key in keys:
        say(f"{key.start}...  {key.made}  {key.name}")
    if not keys:
        say("There are no API keys.")


def _revoke_key(_settings: Settings, paths: Paths, given: argparse.Namespace, say: Say) -> None:
    ApiKeys(paths.api_keys).revoke(given.name)
    say(f"The key of {given.name} opens nothing any more.")


def _admin_link(settings: Settings, paths: Paths, _given: argparse.Namespace, say: Say) -> None:
    door = FrontDoor(paths.front_door, settings.host, settings.port, "")
    say(door.own_url + new_link(paths.links, "/admin"))
    say("It opens the admin page once, within a day, in a browser on this PC.")


def _tune(settings: Settings, paths: Paths, _given: argparse.Namespace, say: Say) -> None:
    from appliance.operate.tune_command import tune_at_console  # here: numpy and the rest are of no use to the others

    tune_at_console(settings, paths, say)


COMMANDS: Final = {
    "admin-link": Command("make a link that lets a browser on this PC administer", _admin_link),
    "set-passcode": Command("set the passcode colleagues log in with", _set_passcode),
    "set-admin-password": Command("set the admin's password", _set_admin_password),
    "add-key": Command("make an API key for a person or a machine", _add_key, takes_name=True),
    "list-keys": Command("list the API keys", _list_keys),
    "revoke-key": Command("take an API key back", _revoke_key, takes_name=True),
    "tune": Command("find the form of the model that is fastest on this PC", _tune, takes_model=True),
}
"""By the word that follows `app.py`."""


def _read_password(role: Role) -> str:
    """Typed twice without echo, or one line from a script. Raises PasswordError."""
    if sys.stdin is None or not sys.stdin.isatty():
        return (sys.stdin.readline() if sys.stdin is not None else "").rstrip("\r\n")
    text = getpass.getpass(f"New one ({MIN_CHARS[role]} characters or more): ")
    if getpass.getpass("Once more: ") != text:
        raise PasswordError("These were not the same. Nothing is changed.")
    return text
