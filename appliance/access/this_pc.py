"""Which browser is the owner's on this PC: one that has followed a link which the program itself opened or printed.

The address of a connection proves nothing: behind a byte forwarder everybody comes from this PC. A link works once and
for a day; what lies in the file are digests. Whoever can write the file is the owner's account anyway.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from itsdangerous import BadData, URLSafeSerializer

from appliance.base.private_file import PrivateRecord

COOKIE_NAME: Final = "office_chat_this_pc"
KEPT_BY_BROWSER_S: Final = 365 * 24 * 3600
PATH: Final = "/here"
LASTS_S: Final = 24 * 3600
"""Of a link that nobody has followed."""
_MAX_LINKS: Final = 50


def new_link(links: Path, page: str) -> str:
    """The path of a new link that leads to `page`, for the program that has this data folder. Raises StartFailed."""
    token = secrets.token_urlsafe(32)
    record, now = PrivateRecord(links), time.time()
    kept = [entry for entry in record.read().items() if entry[1] > now][-_MAX_LINKS:]
    record.write({**dict(kept), _digest(token): int(now + LASTS_S)})
    return f"{PATH}?{urlencode({'token': token, 'next': page})}"


class ThisPc:
    """Takes links, and knows the browsers that followed one. Touches the disk."""

    def __init__(self, secret: bytes, links: Path, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix time, s."""
        self.links = links
        self._serializer = URLSafeSerializer(secret, salt="office-chat this pc")
        self._record = PrivateRecord(links)
        self._clock = clock

    def take(self, token: str) -> str | None:
        """The cookie for a browser that shows a link's token, which is used up now; None for any other. Raises
        StartFailed."""
        known = dict(self._record.read())
        if known.pop(_digest(token), 0) <= self._clock():
            return None
        self._record.write(known)
        return self.issue()

    def issue(self) -> str:
        """The cookie's value for the owner's browser on this PC."""
        return str(self._serializer.dumps(secrets.token_urlsafe(12)))

    def is_proven(self, cookies: Mapping[str, str]) -> bool:
        """Whether these cookies are of a browser that followed a link."""
        try:
            return isinstance(self._serializer.loads(cookies.get(COOKIE_NAME, "")), str)
        except BadData:
            return False


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
