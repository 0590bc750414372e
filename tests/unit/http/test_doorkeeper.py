"""Who gets past the doorkeeper, by mode, address, cookie and key: the app without the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import APIRouter
from starlette.requests import Request

from appliance.access.logins import COOKIE_NAME
from appliance.access.passwords import Passwords
from appliance.access.person import Persons
from appliance.access.rights import Access, caller_of
from appliance.access.this_pc import COOKIE_NAME as THIS_PC
from appliance.base.errors import StartFailed
from appliance.base.paths import Paths
from appliance.http.web import make_app
from appliance.settings.schema import Settings

SECRET = b"k" * 32
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PATHS = (
    "/",
    "/place",
    "/ready",
    "/config",
    "/gradio_api/queue/join",
    "/v1/models",
    "/metrics",
    "/admin/status",
    "/health",
)
OTHER_PC = "192.168.1.7"


class Site:
    """Routes that say who asks, behind the doorkeeper; `ask` is one request from somewhere."""

    def __init__(self, data_dir: Path, mode: str = "open", *, passcode: str = "", admin_password: str = "") -> None:
        paths = Paths(data_dir)
        passwords = Passwords(paths.passwords, QUICK)
        if passcode:
            passwords.set("person", passcode)
        if admin_password:
            passwords.set("admin", admin_password)
        settings = Settings.model_validate({"access": mode, "allowed_hosts": "office.example"})
        self.access = Access.of(settings, paths, Persons(SECRET), SECRET)
        router = APIRouter()

        async def who(request: Request) -> dict[str, Any]:
            caller = caller_of(request)
            return {"kind": caller.kind, "program": caller.program, "is_admin": caller.is_admin}

        router.add_api_route("/{path:path}", who, methods=["GET", "POST"])
        self.app = make_app([router], Persons(SECRET), self.access, lambda code: f"sentence {code}")

    async def ask(
        self,
        path: str,
        peer: str = "127.0.0.1",
        host: str = "127.0.0.1:7860",
        method: str = "GET",
        **headers: str,
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, client=(peer, 1234))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as http:
            return await http.request(method, path, headers=named)

    async def open_doors(self, **request: str) -> set[str]:
        return {path for path in PATHS if (await self.ask(path, **request)).status_code == 200}

    def cookie(self, role: Any) -> str:
        return f"{COOKIE_NAME}={self.access.logins.issue(role)}"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Site]:
    return lambda *args, **kwargs: Site(tmp_path, *args, **kwargs)


PAGE = {"/", "/place", "/ready", "/config", "/gradio_api/queue/join", "/health"}
LAN = {"peer": OTHER_PC, "host": "192.168.1.20:7860"}


async def test_open_lets_everybody_chat_and_the_owners_browser_administer_until_there_is_an_admin_password(make):
    site = make()
    here = f"{THIS_PC}={site.access.this_pc.issue()}"
    assert await site.open_doors() == PAGE, "a forwarder on this PC looks like this PC"
    assert await site.open_doors(cookie=here) == PAGE | {"/admin/status"}
    assert await site.open_doors(**LAN) == PAGE
    assert await site.open_doors(**LAN, cookie=here) == PAGE, "the cookie alone does not do"
    key = "Bearer " + site.access.keys.add("ann")
    assert await site.open_doors(**LAN, authorization=key) == PAGE | {"/v1/models", "/metrics"}
    site.access.passwords.set("admin", "long enough")
    assert await site.open_doors(cookie=here) == PAGE
    assert await site.open_doors(cookie=site.cookie("admin"), **LAN) == PAGE | {"/admin/status"}


async def test_programs_on_this_pc_need_a_key_unless_the_owner_says_otherwise(make):
    site = make()
    assert (await site.ask("/v1/models")).status_code == 401
    site.access.keyless_here = True
    assert await site.open_doors() == PAGE | {"/v1/models", "/metrics"}
    assert await site.open_doors(**LAN) == PAGE
    site.access.mode = "passcode"
    assert (await site.ask("/v1/models")).status_code == 401


async def test_passcode_asks_everybody_this_pc_included(make):
    site = make("passcode", passcode="open sesame")
    assert await site.open_doors() == {"/health"}
    assert await site.open_doors(**LAN) == {"/health"}
    assert await site.open_doors(**LAN, cookie=site.cookie("person")) == PAGE
    assert await site.open_doors(cookie=site.cookie("person")) == PAGE
    here = f"{site.cookie('person')}; {THIS_PC}={site.access.this_pc.issue()}"
    assert await site.open_doors(cookie=here) == PAGE | {"/admin/status"}
    key = "Bearer " + site.access.keys.add("ann")
    assert await site.open_doors(**LAN, authorization=key) == {"/health", "/ready", "/v1/models", "/metrics"}
    site.access.passwords.set("admin", "long enough")
    assert await site.open_doors(cookie=site.cookie("person")) == PAGE
    assert await site.open_doors(**LAN, cookie=site.cookie("admin")) == PAGE | {"/admin/status"}


async def test_a_key_is_never_the_admin(make):
    site = make()
    key = site.access.keys.add("ann")
    for value in (f"Bearer {key}", f"bearer  {key}", "Bearer oc_wrong"):
        assert (await site.ask("/admin/status", authorization=value)).status_code == 403
    site.access.passwords.set("admin", "long enough")
    cookie = site.cookie("admin")
    assert (await site.ask("/admin/status", cookie=cookie, authorization=f"Bearer {key}")).status_code == 403
    # A proxy's own password is none of ours.
    assert (await site.ask("/admin/status", cookie=cookie, authorization="Basic YTpi")).status_code == 200


async def test_a_persons_login_is_no_key_and_no_admin(make):
    site = make("passcode", passcode="open sesame", admin_password="long enough")
    cookie = site.cookie("person")
    assert (await site.ask("/v1/models", cookie=cookie)).status_code == 401
    assert (await site.ask("/admin/status", cookie=cookie)).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"host": "office.example"},
    ],
)
async def test_what_is_passed_on_is_not_this_pc(make, headers):
    site = make()
    site.access.keyless_here = True
    headers |= {"cookie": f"{THIS_PC}={site.access.this_pc.issue()}"}
    assert (await site.ask("/v1/models", **headers)).status_code == 401
    assert (await site.ask("/admin/status", **headers)).status_code == 403
    assert (await site.ask("/", **headers)).status_code == 200


@pytest.mark.parametrize("host", ["attacker.example", "0.0.0.0:7860", "192.168.1.99", "a,b"])
async def test_a_name_that_is_not_ours_gets_one_sentence(make, host):
    site = make()
    for path in PATHS:
        answer = await _named(site, path, host)
        assert (answer.status_code, "sentence unknown_host" in answer.text) == (421, True)


async def _named(site: Site, path: str, host: str) -> httpx.Response:
    transport = httpx.ASGITransport(site.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        return await http.get(path, headers={"host": host})


@pytest.mark.parametrize(
    "origin", ["http://attacker.example", "null", "http://127.0.0.1:8080", "http://localhost:7860"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_foreign_page_gets_nothing_carried_out(make, origin, method):
    site = make()
    for path in PATHS:
        answer = await site.ask(path, method=method, origin=origin)
        assert (answer.status_code, "sentence foreign_origin" in answer.text) == (403, True)


async def test_the_own_page_may_post(make):
    site = make()
    assert (await site.ask("/x", method="POST", origin="http://127.0.0.1:7860")).status_code == 200
    assert (await site.ask("/x", method="POST", sec_fetch_site="cross-site")).status_code == 403


async def test_a_person_is_shown_the_login_and_a_program_a_sentence(make):
    site = make("passcode", passcode="open sesame", admin_password="long enough")
    shown = await site.ask("/place?a=1", accept="text/html")
    assert (shown.status_code, shown.headers["location"]) == (303, "/login?next=%2Fplace%3Fa%3D1")
    shown = await site.ask("/admin/status", accept="text/html")
    assert (shown.status_code, shown.headers["location"]) == (303, "/admin/login?next=%2Fadmin%2Fstatus")
    assert (await site.ask("/place")).json() == {"detail": "sentence login_needed"}
    refused = await site.ask("/v1/models", accept="text/html")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "needs_key"


async def test_a_program_is_named_by_its_key_or_its_address(make):
    site = make()
    site.access.keyless_here = True
    key = site.access.keys.add("ann")
    assert (await site.ask("/v1/models")).json()["program"] == "program 127.0.0.1"
    assert (await site.ask("/v1/models", authorization=f"Bearer {key}")).json()["program"] == "key ann"


@pytest.mark.parametrize(
    "path", ["/v1", "/%761/models", "/v1/../v1/models", "/metrics/", "/admin", "/admin/", "/%61dmin/x"]
)
async def test_other_spellings_of_a_path_open_no_door(make, path):
    site = make("passcode", passcode="open sesame", admin_password="long enough")
    assert (await site.ask(path, cookie=site.cookie("person"))).status_code in (401, 403)


def test_a_passcode_must_be_set_before_it_can_be_asked_for(make):
    with pytest.raises(StartFailed, match="set-passcode"):
        make("passcode")


@pytest.mark.parametrize("name", ["passwords.json", "api-keys.json"])
def test_rights_that_cannot_be_read_stop_the_start_with_a_sentence(make, tmp_path, name):
    (tmp_path / name).write_text("{")
    with pytest.raises(StartFailed, match=name):
        make()


async def test_without_its_file_the_passcode_lets_nobody_in(make, tmp_path):
    site = make("passcode", passcode="open sesame")
    cookie = site.cookie("person")
    assert (await site.ask("/", cookie=cookie)).status_code == 200
    Paths(tmp_path).passwords.unlink()
    assert (await site.ask("/", cookie=cookie)).status_code == 401
