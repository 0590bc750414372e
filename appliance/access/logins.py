"""Who has logged in: a signed cookie that names role, account, time and the password it was made with.

The signature is the proof, so logins survive a restart. A changed password ends those made with the old one, and a
logout ends its own: the few that are ended before their time are listed in a private file.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from appliance.access.passwords import Passwords, Role
from appliance.base.private_file import PrivateRecord

COOKIE_NAME: Final = "office_chat_login"
KEPT_BY_BROWSER_S: Final = 365 * 24 * 3600
"""Longer than a login lasts: an old one still tells that this browser has known the password (`knew`)."""
MAX_ENDED: Final = 10_000
"""As many ended logins are remembered; more come only of somebody who logs in and out for days."""


@dataclass(frozen=True)
class Login:
    """One proven login. The shared passcode has no names; accounts will put theirs into `name`."""

    role: Role
    name: str
    id: str


class Logins:
    """Issues and verifies login cookies."""

    def __init__(
        self,
        secret: bytes,
        passwords: Passwords,
        ended: Path,
        lasts_s: Mapping[Role, float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ended`: the file of logins that were logged out. `clock`: Unix time, s; it must survive a restart."""
        self._serializer = URLSafeSerializer(secret, salt="office-chat login")
        self._passwords = passwords
        self._ended = PrivateRecord(ended)
        self._one_at_a_time = threading.Lock()
        self.lasts_s = lasts_s
        self._clock = clock

    def issue(self, role: Role, name: str = "") -> str:
        """A cookie value for somebody who has just given the password of `role`."""
        return str(
            self._serializer.dumps(
                [role, name, secrets.token_urlsafe(12), int(self._clock()), self._passwords.version(role)]
            )
        )

    def of(self, cookies: Mapping[str, str]) -> Login | None:
        """The login these cookies prove, None without one that still counts."""
        read = self._read(cookies)
        if read is None:
            return None
        login, made_at, version = read
        in_time = 0 <= self._clock() - made_at < self.lasts_s[login.role]
        is_set = self._passwords.is_set(login.role)
        if not in_time or not is_set or version != self._passwords.version(login.role):
            return None
        return None if login.id in self._ended.read() else login

    def knew(self, role: Role, cookies: Mapping[str, str]) -> str | None:
        """The id of a login this browser once had, however old: somebody whom others' wrong guesses need not slow."""
        read = self._read(cookies)
        return None if read is None or read[0].role != role else read[0].id

    def end(self, login: Login) -> None:
        """Log out: this login counts no more, nor do copies of its cookie. Any thread. Raises StartFailed."""
        now = self._clock()
        with self._one_at_a_time:
            kept = [entry for entry in self._ended.read().items() if entry[1] > now][-MAX_ENDED:]
            self._ended.write({**dict(kept), login.id: int(now + self.lasts_s[login.role]) + 1})

    def _read(self, cookies: Mapping[str, str]) -> tuple[Login, float, str] | None:
        try:
            role, name, login_id, made_at, version = self._serializer.loads(cookies.get(COOKIE_NAME, ""))
        except (BadData, ValueError, TypeError):
            return None
        return Login(role, name, login_id), made_at, version
