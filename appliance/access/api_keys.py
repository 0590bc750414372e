"""API keys of programs: one per person or machine, shown once, kept as a digest, revoked by name. Never for the admin.

A key is 256 random bits, which nobody can guess or list, so one SHA-256 is enough: slow hashes are for passwords, and
every request would pay for one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from appliance.base.errors import ApplianceError
from appliance.base.private_file import PrivateRecord

PREFIX: Final = "oc_"
N_SHOWN: Final = len(PREFIX) + 6
_NAME = re.compile(r"[^\W_][\w .'@-]{0,63}")


class KeyNameError(ApplianceError):
    """A name that is taken, unknown, or no name."""


@dataclass(frozen=True)
class ApiKey:
    """What is kept of a key."""

    name: str
    start: str
    """Its first characters, to recognise it by."""
    made: str
    """Day, UTC."""


class ApiKeys:
    """The list in one private file; a change by a command counts from the next request on."""

    def __init__(self, path: Path, today: Callable[[], str] = lambda: datetime.now(UTC).date().isoformat()) -> None:
        self._record = PrivateRecord(path)
        self._today = today

    def name_of(self, key: str) -> str | None:
        """Whose key this is; None for one that was never given out or is revoked."""
        if not key.startswith(PREFIX):
            return None
        digest = _digest(key)
        # The digest of what a caller sent is nothing the caller can steer, so comparing it leaks nothing.
        return next((str(entry["name"]) for entry in self._entries() if entry["sha256"] == digest), None)

    def listed(self) -> list[ApiKey]:
        """All of them, oldest first."""
        return [ApiKey(entry["name"], entry["start"], entry["made"]) for entry in self._entries()]

    def add(self, name: str) -> str:
        """A new key, to be shown this once. Raises KeyNameError."""
        if not _NAME.fullmatch(name):
            raise KeyNameError(f"{name!r} is no name: up to 64 letters, digits, blanks and . ' @ - _ are.")
        if any(entry["name"] == name for entry in self._entries()):
            raise KeyNameError(f"There is a key named {name} already: revoke it first, or choose another name.")
        key = PREFIX + secrets.token_urlsafe(32)
        entry = {"name": name, "start": key[:N_SHOWN], "sha256": _digest(key), "made": self._today()}
        self._record.write({"keys": [*self._entries(), entry]})
        return key

    def revoke(self, name: str) -> None:
        """Take the key of that name back. Raises KeyNameError."""
        kept = [entry for entry in self._entries() if entry["name"] != name]
        if len(kept) == len(self._entries()):
            raise KeyNameError(f"There is no key named {name}.")
        self._record.write({"keys": kept})

    def _entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._record.read().get("keys", [])
        return entries


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
