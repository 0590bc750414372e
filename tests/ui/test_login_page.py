"""The login page: in both languages, without a script, errors in place, back to where one was."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import APIRouter

from appliance.access.logins import COOKIE_NAME
from appliance.access.passwords import Passwords
from appliance.access.person import Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.access.this_pc import COOKIE_NAME as THIS_PC
from appliance.access.this_pc import LASTS_S, new_link
from appliance.base.paths import Paths
from appliance.http.web import make_app
from appliance.settings.schema import Settings
from ui.site.login_page import make_login_router
from ui.words.messages import in_both

SECRET = b"k" * 32
OFFICE = "http://office.example:7860"


class Site:
    """The app with the login page and one page behind it; browsers on another PC."""

    def __init__(self, data_dir: Path, mode: str = "passcode", admin_password: str = "") -> None:
        paths = Paths(data_dir)
        self.passwords = Passwords(paths.passwords, PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        self.passwords.set("person", "open sesame")
        if admin_password:
            self.passwords.set("admin", admin_password)
        settings = Settings.model_validate({"access": mode, "allowed_hosts": "office.example"})
        self.access = Access.of(settings, paths, Persons(SECRET), SECRET)
        pages = APIRouter()

        @pages.get("/")
        async def page() -> str:
            return "the page"

        routers = [make_login_router(self.access, RateLimits(0, 0)), pages]
        self.app = make_app(routers, Persons(SECRET), self.access, in_both)

    def browser(self, address: str = "192.168.1.7", language: str = "en", base_url: str = OFFICE) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=(address, 1234)),
            base_url=base_url,
            headers={"accept": "text/html", "accept-language": language},
            follow_redirects=True,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def log_in(browser: httpx.AsyncClient, password: str, path: str = "/login", **fields: str) -> httpx.Response:
    return await browser.post(path, data={"password": password, **fields}, headers={"origin": OFFICE})


async def test_whoever_knows_the_passcode_gets_where_they_wanted(site: Site) -> None:
    async with site.browser() as browser:
        shown = await browser.get("/?a=1")
        assert 'name="next" value="/?a=1"' in shown.text
        arrived = await log_in(browser, "open sesame", next="/?a=1")
        assert (arrived.url, arrived.json()) == (f"{OFFICE}/?a=1", "the page")
        cookie = arrived.history[0].headers["set-cookie"]
        assert all(part in cookie for part in (COOKIE_NAME, "HttpOnly", "SameSite=lax", "Path=/"))
        assert (await browser.get("/login?next=/%3Fb=2")).url == f"{OFFICE}/?b=2"


@pytest.mark.parametrize(
    ("language", "words"), [("en", ("Passcode", "Log in", "中文")), ("zh-CN,zh;q=0.9", ("口令", "登录", "English"))]
)
async def test_the_page_speaks_the_browsers_language_and_needs_nothing_else(
    site: Site, language: str, words: tuple[str, ...]
) -> None:
    async with site.browser(language=language) as browser:
        shown = await browser.get("/")
        assert all(word in shown.text for word in words)
        assert "<script" not in shown.text
        assert "http" not in re.sub(r"charset=|http-equiv", "", shown.text)
        assert shown.headers["referrer-policy"] == "same-origin"
        assert shown.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in shown.headers["content-security-policy"]


async def test_the_other_language_is_a_link_and_stays(site: Site) -> None:
    async with site.browser() as browser:
        shown = await browser.get("/login?next=/&lang=zh")
        assert 'lang="zh-CN"' in shown.text
        again = await log_in(browser, "wrong", lang="zh")
        assert "输入不正确" in again.text


async def test_a_wrong_passcode_is_said_in_place_and_slowed_down(site: Site) -> None:
    async with site.browser() as browser:
        for _ in range(20):
            answer = await log_in(browser, "wrong", next="/?a=1")
            assert (answer.status_code, "That is not right" in answer.text) == (403, True)
            assert 'name="next" value="/?a=1"' in answer.text
            assert "wrong" not in answer.text.replace("login_wrong", "")
        slowed = await log_in(browser, "open sesame")
        assert slowed.status_code == 429
        assert 1 <= int(slowed.headers["retry-after"]) <= 60
        assert f"in {slowed.headers['retry-after']} seconds" in slowed.text
    async with site.browser(address="192.168.1.8") as other:
        assert (await log_in(other, "open sesame")).is_success


async def test_a_colleague_behind_the_guessers_address_gets_back_in(site: Site) -> None:
    async with site.browser() as colleague, site.browser() as guesser:
        await log_in(colleague, "open sesame")
        for _ in range(25):
            await log_in(guesser, "wrong")
        assert (await log_in(guesser, "open sesame")).status_code == 429
        site.passwords.set("person", "another one")
        assert (await log_in(colleague, "another one")).is_success


async def test_logging_out_ends_the_login_everywhere(site: Site) -> None:
    async with site.browser() as browser:
        await log_in(browser, "open sesame")
        copied = dict(browser.cookies)
        shown = await browser.post("/logout", headers={"origin": OFFICE})
        assert shown.url.path == "/login"
        assert COOKIE_NAME not in browser.cookies
        browser.cookies.update(copied)
        assert (await browser.get("/")).url.path == "/login"


@pytest.mark.parametrize("wanted", ["//attacker.example", "https://attacker.example", '"><script>alert(1)</script>'])
async def test_a_made_up_next_leads_home_and_is_never_markup(site: Site, wanted: str) -> None:
    async with site.browser() as browser:
        shown = await browser.get("/login", params={"next": wanted, "lang": wanted})
        assert "attacker" not in shown.text
        assert "<script" not in shown.text
        assert (await log_in(browser, "open sesame", next=wanted)).url == f"{OFFICE}/"


@pytest.mark.parametrize("body", [b"", b"password", b"\xff=\xff", b"password=" + b"x" * 9000, b"a&" * 50, b"{}"])
async def test_a_form_that_is_none_is_a_wrong_password(site: Site, body: bytes) -> None:
    async with site.browser() as browser:
        assert (await browser.post("/login", content=body, headers={"origin": OFFICE})).status_code == 403


async def test_a_foreign_page_cannot_log_anybody_in_or_out(site: Site) -> None:
    async with site.browser() as browser:
        await log_in(browser, "open sesame")
        for path in ("/login", "/logout", "/admin/login"):
            for origin in ("null", "http://attacker.example", "http://office.example:8080"):
                answer = await browser.post(path, data={"password": "open sesame"}, headers={"origin": origin})
                assert answer.status_code == 403
        assert (await browser.get("/")).json() == "the page"


async def test_open_needs_no_login(tmp_path: Path) -> None:
    async with Site(tmp_path, "open").browser() as browser:
        assert (await browser.get("/login?next=/%3Fa=1")).json() == "the page"


STATUS: dict[str, Any] = {"access": "passcode", "passcode_set": True, "admin_password_set": True, "n_api_keys": 0}


async def test_the_admin_logs_in_apart(tmp_path: Path) -> None:
    site = Site(tmp_path, admin_password="correct horse")
    async with site.browser() as browser:
        await log_in(browser, "open sesame")
        # Somebody known, but not the admin: shown the way in, told no when a program asks.
        assert (await browser.get("/admin/status")).url.path == "/admin/login"
        assert (await browser.get("/admin/status", headers={"accept": "*/*"})).status_code == 403
        assert (await log_in(browser, "open sesame", "/admin/login")).status_code == 403
        arrived = await log_in(browser, "correct horse", "/admin/login", next="/admin/status")
        assert arrived.json() == STATUS
        assert (await browser.get("/")).json() == "the page"


async def test_a_link_lets_one_browser_on_this_pc_in_once(tmp_path: Path) -> None:
    site = Site(tmp_path, "open")
    link = new_link(site.access.this_pc.links, "/admin/status")
    at_home = "http://127.0.0.1:7860"
    async with (
        site.browser() as elsewhere,
        site.browser("127.0.0.1", base_url=at_home) as owner,
        site.browser("127.0.0.1", base_url=at_home) as forwarded,
    ):
        assert (await elsewhere.get(link)).status_code == 403, "the link has to be followed on this PC"
        assert "no admin password yet" in (await forwarded.get("/admin/status")).text
        assert (await forwarded.get("/here?token=guess")).status_code == 403
        assert (await owner.get(link)).json()["admin_password_set"] is False
        assert (await owner.get("/admin/status")).status_code == 200, "a second visit needs no link"
        refused = await forwarded.get(link)
        assert refused.status_code == 403, "it works once"
        assert "app.py admin-link" in refused.text
        assert "Traceback" not in refused.text
        cookie = owner.cookies[THIS_PC]
        tampered = cookie[:-2] + ("aa" if cookie[-2:] != "aa" else "bb")
        shown = await forwarded.get("/admin/status", headers={"cookie": f"{THIS_PC}={tampered}"})
        assert "no admin password yet" in shown.text


async def test_a_link_nobody_followed_for_a_day_is_too_old_and_leads_nowhere_else(tmp_path: Path) -> None:
    site = Site(tmp_path, "open")
    for page in ("//elsewhere.example", "https://elsewhere.example/"):
        async with site.browser("127.0.0.1", base_url="http://127.0.0.1:7860") as owner:
            answer = await owner.get(new_link(site.access.this_pc.links, page), follow_redirects=False)
            assert answer.headers["location"] == "/"
            assert "httponly" in answer.headers["set-cookie"].lower()
    link = new_link(site.access.this_pc.links, "/")
    site.access.this_pc._clock = lambda: time.time() + LASTS_S + 1
    async with site.browser("127.0.0.1", base_url="http://127.0.0.1:7860") as late:
        assert (await late.get(link)).status_code == 403


async def test_without_an_admin_password_only_the_owners_browser_is_let_in(tmp_path: Path) -> None:
    site = Site(tmp_path, "open")
    async with site.browser() as elsewhere, site.browser("127.0.0.1", base_url="http://127.0.0.1:7860") as here:
        refused = await elsewhere.get("/admin/login")
        assert "no admin password yet" in refused.text
        assert "<form" not in refused.text.replace('<form method="post" action="/admin/login" hidden>', "")
        assert "no admin password yet" in (await elsewhere.get("/admin/status")).text
        assert (await log_in(elsewhere, "", "/admin/login")).status_code == 200
        assert "no admin password yet" in (await elsewhere.get("/admin/status")).text
        assert "by the link" in (await here.get("/admin/login?next=/admin/status")).text
        here.cookies.set(THIS_PC, site.access.this_pc.issue())
        assert (await here.get("/admin/login?next=/admin/status")).json()["admin_password_set"] is False
