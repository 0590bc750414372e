"""Every route and every event of the whole app, page included, as the program builds it: none is forgotten.

The app is asked without being started: whoever is refused never gets as far as a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from starlette.routing import Mount

from app import build_page
from appliance.access.logins import COOKIE_NAME
from appliance.access.passwords import Passwords
from appliance.access.rights import Door, door_of
from appliance.base.paths import Paths
from appliance.lifecycle import Appliance
from appliance.settings.schema import Settings
from ui.admin.page import AdminPages
from ui.words.messages import LANGUAGES

NEEDS_NOTHING = {"/health", "/login", "/admin/login", "/favicon.ico", "/here"}
NEEDS_A_KEY = {"/v1", "/metrics"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X")


class Whole:
    """The whole app in passcode mode."""

    def __init__(self, data_dir: Path) -> None:
        paths = Paths(data_dir)
        passwords = Passwords(paths.passwords, PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        passwords.set("person", "open sesame")
        passwords.set("admin", "correct horse")
        settings = Settings.model_validate({"backend": "echo", "access": "passcode", "data_dir": str(data_dir)})
        self.appliance = Appliance(settings, paths)
        self.app, self.page = build_page(self.appliance, paths)
        (pages,) = [route.app for route in self.app.routes if isinstance(getattr(route, "app", None), AdminPages)]
        self.admin_demos = {language: pages.build(language) for language in LANGUAGES}

    def paths(self) -> set[str]:
        """Every path with its blanks filled in, those of the mounted page and of what it mounts included."""
        return {path.replace("//", "/") for path in _paths(self.app.routes)}

    def client(self, **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7860", headers=headers)

    def cookie(self, role: Any) -> str:
        return f"{COOKIE_NAME}={self.appliance.access.logins.issue(role)}"


def _paths(routes: Any) -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from (route.path + path for path in _paths(route.routes or []))
        elif hasattr(route, "path"):
            yield _filled(route.path)
        else:
            yield from _paths(route.original_router.routes)  # how FastAPI keeps a router that was included


def _filled(path: str) -> str:
    parts = path.split("/")
    return "/".join(
        "x" if part.startswith("{") else part.partition("{")[0] + "x" if "{" in part else part for part in parts
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def test_the_routes_were_found(whole: Whole) -> None:
    expected = {"/", "/v1/chat/completions", "/place", "/ready", "/config", "/theme.css", "/gradio_api/queue/join"}
    assert expected | NEEDS_NOTHING <= whole.paths()
    assert len(whole.paths()) > 40


async def test_without_a_login_every_route_refuses_in_every_way(whole: Whole) -> None:
    doors = {"", "/", "/nothing/of/this/name", "/gradio_api/file=/etc/passwd", "/static/../x"} | whole.paths()
    async with whole.client() as client:
        for path in sorted(doors - NEEDS_NOTHING):
            for method in METHODS:
                answer = await client.request(method, path)
                assert answer.status_code == 401, (method, path)
                assert len(answer.content) < 500


async def test_what_needs_nothing_gives_nothing_away(whole: Whole) -> None:
    async with whole.client() as client:
        for path in sorted(NEEDS_NOTHING):
            shown = await client.get(path)
            assert shown.status_code in (200, 403, 404, 405), path
            assert b"gradio" not in shown.content.lower()


async def test_without_a_login_every_event_refuses(whole: Whole) -> None:
    names = {fn.api_name for fn in whole.page.demo.fns.values()}
    assert {"ask", "forget"} <= names
    async with whole.client() as client:
        for number, fn in whole.page.demo.fns.items():
            body = {"fn_index": number, "data": ["x"] * len(fn.inputs), "session_hash": "s"}
            for path in (
                "queue/join",
                "run/predict",
                f"run/{fn.api_name}",
                f"call/{fn.api_name}",
                f"api/{fn.api_name}",
            ):
                assert (await client.post(f"/gradio_api/{path}", json=body)).status_code == 401, (number, path)


async def test_a_persons_cookie_and_a_key_open_no_door_of_the_admin(whole: Whole) -> None:
    admins = sorted(path for path in whole.paths() if door_of(path) is Door.ADMIN)
    assert {"/admin/status", "/admin/settings", "/admin/en/config", "/admin/zh/gradio_api/queue/join"} <= set(admins)
    key = whole.appliance.access.keys.add("ann")
    for headers in ({"cookie": whole.cookie("person")}, {"authorization": f"Bearer {key}"}):
        async with whole.client(**headers) as client:
            for path in [*admins, "/admin/anything"]:
                for method in METHODS:
                    assert (await client.request(method, path)).status_code in (401, 403), (method, path)


async def test_no_event_of_the_admin_page_runs_for_anybody_else(whole: Whole) -> None:
    key = whole.appliance.access.keys.add("carl")
    for headers in ({}, {"cookie": whole.cookie("person")}, {"authorization": f"Bearer {key}"}):
        async with whole.client(**headers) as client:
            for language, demo in whole.admin_demos.items():
                assert len(demo.fns) > 20
                for number, fn in demo.fns.items():
                    body = {"fn_index": number, "data": ["x"] * len(fn.inputs), "session_hash": "s"}
                    for path in ("queue/join", "run/predict", f"run/{fn.api_name}", f"call/{fn.api_name}"):
                        answer = await client.post(f"/admin/{language}/gradio_api/{path}", json=body)
                        assert answer.status_code in (401, 403), (number, path)


async def test_the_admin_may_press_everything_and_nothing_else_is_let_through(whole: Whole) -> None:
    demo = whole.admin_demos["en"]
    harmless = {
        "numbers",
        "charts",
        "settings",
        "quick_answers_show",
        "cache_show",
        "keys_show",
        "sessions_show",
        "log",
    }
    async with whole.client(cookie=whole.cookie("admin")) as client:
        for number, fn in demo.fns.items():
            if fn.api_name in harmless:
                data = {"charts": ["hour"], "log": ["all"]}.get(fn.api_name, [])
                body = {"fn_index": number, "data": data, "session_hash": "s"}
                answer = await client.post("/admin/en/gradio_api/run/predict", json=body)
                assert answer.status_code == 200, (fn.api_name, answer.text)
                harmless.remove(fn.api_name)
        assert harmless == set()
        for path in ("upload", "queue/join", "call/numbers", "heartbeat/s", "reset", "cancel"):
            answer = await client.post(f"/admin/en/gradio_api/{path}", json={"session_hash": "s", "fn_index": 0})
            assert answer.status_code == 404, path


async def test_a_login_is_no_key(whole: Whole) -> None:
    programs = sorted(path for path in whole.paths() if door_of(path) is Door.PROGRAM)
    assert {"/" + path.split("/")[1] for path in programs} <= NEEDS_A_KEY
    async with whole.client(cookie=whole.cookie("person")) as client:
        for path in programs:
            assert (await client.post(path)).status_code == 401, path


async def test_with_a_login_the_page_is_there_and_tells_no_secret_and_no_path(whole: Whole) -> None:
    key = whole.appliance.access.keys.add("bob")
    paths = Paths(Path(whole.appliance.settings.data_dir))
    secrets = [
        str(paths.data_dir),
        str(Path(__file__).parents[2]),
        str(Path.home()),
        paths.secret.read_bytes().hex(),
        "$argon2",
        "open sesame",
        "correct horse",
        key,
    ]
    async with whole.client(cookie=whole.cookie("person")) as client:
        for path in ("/", "/config", "/theme.css"):
            shown = await client.get(path)
            assert shown.status_code == 200, path
            assert [secret for secret in secrets if secret in shown.text] == [], path


def test_gradio_keeps_a_bounded_number_of_pages_in_memory(whole):
    holders = (whole.page.demo.state_holder, whole.page.demo.app.state_holder)
    for states in holders:
        for i in range(600):
            assert states[f"page {i}"] is not None
        assert len(states.session_data) <= 256
