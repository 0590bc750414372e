"""Who may: what a request proves about who asks, and which doors that opens. Knows no routes beyond their first folder.

    mode       page                 /v1 and /metrics                             /admin
    open       everybody            a key; this PC where the owner allows it     the admin
    passcode   a login              a key                                        the admin

The admin has given the admin password; as long as none is set, it is the owner's browser on this PC (this_pc.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from starlette.requests import HTTPConnection

from appliance.access.api_keys import ApiKeys
from appliance.access.logins import Login, Logins
from appliance.access.passwords import Passwords, Role
from appliance.access.person import Persons
from appliance.access.this_pc import PATH as HERE
from appliance.access.this_pc import ThisPc
from appliance.base.errors import LoginNeeded, NeedsAdmin, NeedsKey, NotAdmin, StartFailed
from appliance.base.paths import Paths
from appliance.network.hosts import Authority, KnownHosts, counted_address, is_on_this_pc
from appliance.settings.schema import Settings

OPEN_TO_ALL: Final = frozenset({"/health", "/login", "/admin/login", "/favicon.ico", HERE})
"""What nobody needs to prove anything for: that the program lives, and the ways in."""
FOR_PROGRAMS: Final = ("/v1", "/metrics")
FOR_THE_ADMIN: Final = ("/admin",)
ALSO_WITH_KEY: Final = "/ready"
_SCOPE_KEY: Final = "office_chat.caller"


class Door(Enum):
    """What a path asks of its caller."""

    NONE = auto()
    PAGE = auto()
    PROGRAM = auto()
    ADMIN = auto()


@dataclass(frozen=True)
class Caller:
    """Who asks, as far as the request proves it. Several can be true: a browser on this PC may have logged in."""

    address: str
    """Of the other end, as limits count it; "" where there is none."""
    is_loopback: bool
    """Both ends of the connection are on this PC, and nobody says that it was passed on. A forwarder may not say so."""
    is_this_pc: bool
    """It is the owner's browser on this PC."""
    person: str | None
    """The page's signed cookie."""
    login: Login | None
    key_name: str | None
    """The name of a valid API key."""
    is_admin: bool

    @property
    def kind(self) -> Literal["key", "page", "this_pc", "stranger"]:
        """The one word for it, most specific first."""
        if self.key_name is not None:
            return "key"
        if self.person is not None:
            return "page"
        return "this_pc" if self.is_this_pc else "stranger"

    @property
    def program(self) -> str:
        """Names a program for fair shares and kept KV state; never a page's person."""
        return f"key {self.key_name}" if self.key_name is not None else f"program {self.address}"


def caller_of(connection: HTTPConnection) -> Caller:
    """Who sent this request. The doorkeeper has put it there, so everything behind it may ask."""
    caller: Caller = connection.scope[_SCOPE_KEY]
    return caller


class Access:
    """The rights of one program. Stateless but for the files that commands change."""

    def __init__(
        self,
        mode: Literal["open", "passcode"],
        persons: Persons,
        passwords: Passwords,
        logins: Logins,
        keys: ApiKeys,
        hosts: KnownHosts,
        this_pc: ThisPc,
        *,
        keyless_here: bool = False,
    ) -> None:
        """`keyless_here`: programs on this PC, and whatever is forwarded here, need no key."""
        self.mode = mode
        self.this_pc = this_pc
        self.keyless_here = keyless_here
        self.passwords = passwords
        self.logins = logins
        self.keys = keys
        self.hosts = hosts
        self._persons = persons

    @classmethod
    def of(
        cls, settings: Settings, paths: Paths, persons: Persons, secret: bytes, announced: Callable[[], str] = str
    ) -> Access:
        """The rights the settings and the data folder say; `announced` as for KnownHosts.

        Raises:
            StartFailed: a passcode is asked for and none is set, or a file of rights cannot be read.
        """
        passwords, keys = Passwords(paths.passwords), ApiKeys(paths.api_keys)
        keys.listed()
        if not passwords.is_set("person") and settings.access == "passcode":
            raise StartFailed("access = passcode: no passcode is set yet. Set one with: app.py set-passcode")
        logins = Logins(secret, passwords, paths.ended_logins, _lasts_s(settings))
        return cls(
            settings.access,
            persons,
            passwords,
            logins,
            keys,
            _hosts(settings, announced),
            ThisPc(secret, paths.links),
            keyless_here=settings.keyless_here,
        )

    def use(self, settings: Settings) -> None:
        """Go by these from the next request on. Logins that were made last as long as the settings say now."""
        self.mode = settings.access
        self.keyless_here = settings.keyless_here
        self.logins.lasts_s = _lasts_s(settings)
        self.hosts = _hosts(settings, self.hosts.announced)

    def is_owners(self, connection: HTTPConnection) -> bool:
        """Whether it shows a cookie that only the owner's browser has, for what stands before the doorkeeper."""
        cookies = connection.cookies
        if self.this_pc.is_proven(cookies):
            return True
        login = self.logins.of(cookies)
        return login is not None and login.role == "admin"

    def identify(self, connection: HTTPConnection, host: Authority) -> Caller:
        """Read everything the request proves, and keep it for `caller_of`. Its origin must have been checked."""
        peer = connection.client.host if connection.client is not None else None
        is_loopback = is_on_this_pc(connection.headers, peer, host)
        is_this_pc = is_loopback and self.this_pc.is_proven(connection.cookies)
        login = self.logins.of(connection.cookies)
        bearer = _bearer(connection.headers.get("authorization", ""))
        has_given_password = login is not None and login.role == "admin"
        caller = Caller(
            address=counted_address(peer),
            is_loopback=is_loopback,
            is_this_pc=is_this_pc,
            person=self._persons.of(connection.cookies),
            login=login,
            key_name=self.keys.name_of(bearer) if bearer else None,
            # Whoever shows a key, even a wrong one, asks as a program, whatever else the request carries.
            is_admin=bearer is None and (has_given_password if self.passwords.is_set("admin") else is_this_pc),
        )
        connection.scope[_SCOPE_KEY] = caller
        return caller

    def check(self, caller: Caller, path: str) -> None:
        """Let the caller through this door, or raise LoginNeeded, NeedsKey, NeedsAdmin or NotAdmin."""
        door = door_of(path)
        is_open = self.mode == "open"
        has_key = caller.key_name is not None
        if door is Door.NONE:
            return
        if door is Door.PROGRAM:
            if not has_key and not (is_open and self.keyless_here and caller.is_loopback):
                raise NeedsKey("this route is for programs with a key")
            return
        if door is Door.ADMIN and self.passwords.is_set("admin") and caller.login is None:
            raise NeedsAdmin("no login")
        if not is_open and caller.login is None and not (path == ALSO_WITH_KEY and has_key):
            raise LoginNeeded("no login")
        if door is Door.ADMIN and not caller.is_admin:
            raise NotAdmin("not the admin")


def _hosts(settings: Settings, announced: Callable[[], str]) -> KnownHosts:
    names = [f"{settings.lan_name}.local"] if settings.lan_name else []
    return KnownHosts((*settings.allowed_host_names, *names), announced=announced)


def _lasts_s(settings: Settings) -> Mapping[Role, float]:
    return {"person": settings.login_days * 86_400, "admin": settings.admin_login_hours * 3600}


def _bearer(authorization: str) -> str | None:
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def door_of(path: str) -> Door:
    """What stands before a path, after percent-decoding, as routes see it. What is not listed belongs to the page."""
    if path in OPEN_TO_ALL:
        return Door.NONE
    for door, folders in ((Door.PROGRAM, FOR_PROGRAMS), (Door.ADMIN, FOR_THE_ADMIN)):
        if any(path == folder or path.startswith(folder + "/") for folder in folders):
            return door
    return Door.PAGE
