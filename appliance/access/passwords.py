"""The shared passcode and the admin password: kept as Argon2 hashes in a private file, and checked here.

One check takes 46 MiB and some 50 ms of a core, so only one runs at a time, beside the event loop, and few may wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.base.errors import ApplianceError, Busy
from appliance.base.private_file import PrivateRecord

Role = Literal["person", "admin"]

MIN_CHARS: Final[dict[Role, int]] = {"person": 6, "admin": 8}
MAX_CHARS: Final = 200
MAX_WAITING: Final = 8
_STORED_AS: Final[dict[Role, str]] = {"person": "passcode", "admin": "admin_password"}
# OWASP's first choice for Argon2id with one lane: the model's threads are not to fight with four of ours.
_HASHER = PasswordHasher(time_cost=1, memory_cost=47_104, parallelism=1)


class PasswordError(ApplianceError):
    """A password that cannot be set."""


class Passwords:
    """Both passwords. A change, also by a command beside the running program, counts from the next request on."""

    def __init__(self, path: Path, hasher: PasswordHasher = _HASHER) -> None:
        self._record = PrivateRecord(path)
        self._hasher = hasher
        self._one_at_a_time = asyncio.Semaphore(1)
        self._n_inside = 0

    def is_set(self, role: Role) -> bool:
        """Whether there is one."""
        return bool(self._hash(role))

    def version(self, role: Role) -> str:
        """Names the present password without telling anything of it: a login made with another one is over."""
        return hashlib.sha256(self._hash(role).encode()).hexdigest()[:16]

    def set(self, role: Role, text: str) -> None:
        """Keep a new one; takes 50 ms. Raises PasswordError, StartFailed."""
        spelled = _spelled(text)
        if not MIN_CHARS[role] <= len(spelled) <= MAX_CHARS:
            raise PasswordError(f"It needs {MIN_CHARS[role]} to {MAX_CHARS} characters; this has {len(spelled)}.")
        self._record.write({**self._record.read(), _STORED_AS[role]: self._hasher.hash(spelled)})

    async def matches(self, role: Role, text: str, may_try: Callable[[], None]) -> bool:
        """Whether this is the password. Without one set nothing matches.

        Args:
            may_try: raises if by the time this one's turn comes too many others were wrong.
        Raises:
            Busy: too many are waiting to be checked.
        """
        if self._n_inside > MAX_WAITING:
            raise Busy("too many passwords are waiting to be checked")
        self._n_inside += 1
        try:
            async with self._one_at_a_time:
                may_try()
                return await asyncio.to_thread(self._verify, self._hash(role), _spelled(text[: MAX_CHARS + 1]))
        finally:
            self._n_inside -= 1

    def _verify(self, kept: str, spelled: str) -> bool:
        try:
            return bool(kept) and self._hasher.verify(kept, spelled)
        except (VerificationError, InvalidHashError):
            return False

    def _hash(self, role: Role) -> str:
        return str(self._record.read().get(_STORED_AS[role], ""))


def _spelled(text: str) -> str:
    """One spelling: an input method may write the same digits in full width."""
    return unicodedata.normalize("NFKC", text).strip()
