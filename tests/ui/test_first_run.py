"""The four steps of the first run: each does what it says, can be skipped, and can be done again."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI

from appliance.access.api_keys import ApiKeys
from appliance.access.logins import COOKIE_NAME, Logins
from appliance.access.passwords import Passwords
from appliance.access.person import Persons
from appliance.access.rights import Access
from appliance.access.this_pc import ThisPc
from appliance.base.errors import SettingsError
from appliance.models import model_library
from appliance.models.model_download import DownloadState
from appliance.network.front_door import FrontDoor
from appliance.network.hosts import KnownHosts
from appliance.network.interfaces import Adapter
from appliance.operate.self_test import SelfTest, SelfTestState, Verdict
from tests.unit.engine_double import INFO, ScriptedEngine, settle
from tests.unit.models.test_model_library import Shelf
from ui.admin.first_run import PATH, STEPS, FirstRunParts, make_first_run_router

SECRET = b"x" * 32
VERDICT = Verdict("Small", INFO.fingerprint, 12, 8.0, 22, 1.2, 2 * 10**9, 34 * 10**9, 1.7e9)


class Bench:
    """What the self-test needs; the engine answers nothing by itself."""

    def __init__(self, shelf: Shelf) -> None:
        self.engine = ScriptedEngine()
        self.settings = shelf.library._settings
        self.model_source: Path | None = None


class Owner:
    """A program that is being set up, and a browser at it."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder)
        paths = self.shelf.paths
        quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        self.passwords = Passwords(paths.passwords, quick)
        logins = Logins(SECRET, self.passwords, paths.ended_logins, {"person": 60, "admin": 60})
        keys, hosts = ApiKeys(paths.api_keys), KnownHosts(())
        this_pc = ThisPc(SECRET, paths.links)
        self.access = Access("open", Persons(SECRET), self.passwords, logins, keys, hosts, this_pc)
        self.language = "auto"
        self.is_locked = self.is_finished = False
        self.self_test = SelfTest(Bench(self.shelf), paths)  # type: ignore[arg-type]
        door = FrontDoor(folder / "note", "0.0.0.0", 7860, "", lambda: [Adapter("eth0", "192.168.1.20")])
        self.house = FirstRunParts(
            self.access, self.shelf.library, self.self_test, door, lambda: self.language, self.save, self.finish
        )

    async def save(self, language: str) -> None:
        if self.is_locked:
            raise SettingsError("set by a flag")
        self.language = language

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Owner:
    monkeypatch.setattr(model_library, "available_ram_bytes", lambda: 10**12)
    return Owner(tmp_path)


@pytest.fixture
async def browser(owner) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(make_first_run_router(owner.house))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://pc") as client:
        yield client


async def page(browser: httpx.AsyncClient, step: str, language: str = "en") -> str:
    answer = await browser.get(PATH, params={"step": step, "lang": language})
    assert answer.status_code == 200
    return answer.text


async def press(browser: httpx.AsyncClient, step: str, action: str, **fields: str) -> httpx.Response:
    return await browser.post(PATH, params={"step": step, "lang": "en"}, data={"action": action, **fields})


@pytest.mark.parametrize("language", ["zh", "en"])
async def test_four_steps_each_with_a_way_on_a_way_out_and_the_other_language(browser, language):
    for number, step in enumerate(STEPS):
        html = await page(browser, step, language)
        assert f'lang="{"zh-CN" if language == "zh" else "en"}"' in html
        assert f"lang={'en' if language == 'zh' else 'zh'}" in html
        assert 'value="finish"' in html
        if number + 1 < len(STEPS):
            assert f"step={STEPS[number + 1]}" in html
        assert "$" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
        assert "script" not in html


async def test_the_first_step_comes_first_and_in_the_browsers_language(browser):
    html = (await browser.get(PATH, headers={"accept-language": "zh-CN,zh;q=0.9"})).text
    assert "第 1 步，共 4 步" in html


async def test_the_language_chosen_is_kept_and_spoken_from_then_on(owner, browser):
    answer = await press(browser, "language", "language", language="zh")
    assert (answer.status_code, owner.language) == (303, "zh")
    assert answer.headers["location"] == f"{PATH}?step=password&lang=zh"


async def test_a_language_set_by_a_flag_is_said_to_be_locked(owner, browser):
    owner.is_locked = True
    answer = await press(browser, "language", "language", language="zh")
    assert answer.status_code == 422
    assert "命令行" in answer.text
    assert (await press(browser, "language", "language", language="auto")).status_code == 303


async def test_a_language_that_cannot_be_saved_is_said(owner, browser):
    async def fail(_language: str) -> None:
        raise OSError(28, "No space left on device")

    object.__setattr__(owner.house, "save_language", fail)
    answer = await press(browser, "language", "language", language="zh")
    assert answer.status_code == 422
    assert "磁盘" in answer.text


@pytest.mark.parametrize("language", ["", "fr"])
async def test_no_other_language_is_taken(owner, browser, language):
    await press(browser, "language", "language", language=language)
    assert owner.language == "auto"


async def test_the_password_is_set_and_its_owner_is_in(owner, browser):
    answer = await press(browser, "password", "password", password="correct horse", again="correct horse")
    assert answer.status_code == 303
    assert owner.passwords.is_set("admin")
    login = owner.access.logins.of(browser.cookies)
    assert login is not None
    assert login.role == "admin"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert COOKIE_NAME in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("password", "again", "words"),
    [("correct horse", "correct mouse", "not the same"), ("short", "short", "8 to 200"), ("", "", "8 to 200")],
)
async def test_a_password_that_will_not_do_changes_nothing_and_is_not_repeated(owner, browser, password, again, words):
    answer = await press(browser, "password", "password", password=password, again=again)
    assert answer.status_code == 422
    assert words in answer.text
    assert "correct" not in answer.text
    assert not owner.passwords.is_set("admin")


async def test_a_password_that_is_set_is_not_replaced_here(owner, browser):
    owner.passwords.set("admin", "correct horse")
    before = owner.passwords.version("admin")
    assert "can be changed on the admin page" in await page(browser, "password")
    answer = await press(browser, "password", "password", password="another one", again="another one")
    assert "set-cookie" not in answer.headers
    assert owner.passwords.version("admin") == before


async def test_a_model_is_chosen_and_what_becomes_of_it_is_said(owner, browser):
    path = owner.shelf.put("second.gguf")
    (key,) = [entry.key for entry in owner.shelf.library.entries() if entry.path == path]
    owner.shelf.gate.clear()
    assert key in await page(browser, "model")
    assert (await press(browser, "model", "use", model=key)).status_code == 303
    await settle()
    html = await page(browser, "model")
    assert "Questions asked meanwhile wait" in html
    assert 'http-equiv="refresh"' in html
    owner.shelf.gate.set()
    while owner.shelf.library.changing_to:
        await settle()
    html = await page(browser, "model")
    assert "second answers now" in html
    assert 'http-equiv="refresh"' not in html


async def test_without_a_choice_it_says_so(browser):
    await press(browser, "model", "use")
    assert "choose a model first" in await page(browser, "model")


async def test_a_download_is_offered_with_its_size_and_never_begun_by_looking(owner, browser):
    html = await page(browser, "model")
    assert "qwen2.5-0.5b-instruct" in html
    assert "676 MB" in html
    assert owner.shelf.library.download.state.phase == "idle"
    owner.shelf.library.download.state = DownloadState("loading", "m.gguf", 50, 100)
    html = await page(browser, "model")
    assert "50 %" in html
    assert 'value="stop_download"' in html
    assert 'value="download"' not in html


async def test_the_self_test_begins_when_asked_and_is_stopped_when_asked(owner, browser):
    assert owner.self_test.state.phase == "idle"
    await press(browser, "test", "test")
    assert owner.self_test.state == SelfTestState("measuring")
    html = await page(browser, "test")
    assert "<progress" in html
    assert 'http-equiv="refresh"' in html
    await settle()
    await press(browser, "test", "stop_test")
    await owner.self_test.wait()
    assert "was stopped" in await page(browser, "test")


async def test_what_it_found_is_said_in_people_and_words_with_the_address_to_hand_out(owner, browser):
    owner.self_test.verdict = VERDICT
    html = await page(browser, "test")
    assert "Comfortable for 12 people at once, about 6 words a second each; 22 with waiting." in html
    assert "2.0 GB of memory, 34.0 GB of disk" in html
    assert "http://192.168.1.20:7860" in html
    assert "data:image/svg+xml" in html
    assert "12 人同时流畅使用，每人每秒约 12 个字；允许排队时可供 22 人" in await page(browser, "test", "zh")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"people": 1, "with_waiting": 2}, "one person at a time"),
        ({"people": 0, "each_per_s": 2.0}, "about 1.5 words a second for a single person"),
        ({"fingerprint": "other"}, "test again"),
        ({"free_memory_bytes": 10**8}, "little memory"),
        ({"free_disk_bytes": 10**9}, "little disk"),
    ],
)
async def test_what_is_not_well_is_said(owner, browser, changes, words):
    owner.self_test.verdict = replace(VERDICT, **changes)
    assert words in await page(browser, "test")


async def test_finishing_or_skipping_everything_leads_to_the_chat_and_is_remembered(owner, browser):
    answer = await press(browser, "language", "finish")
    assert (answer.status_code, answer.headers["location"], owner.is_finished) == (303, "/", True)
    assert (owner.language, owner.passwords.is_set("admin")) == ("auto", False)


async def test_a_form_of_nonsense_does_nothing(browser):
    answer = await browser.post(PATH, content=b"\xff" * 10_000)
    assert answer.status_code == 303
    assert (await press(browser, "nothing", "everything")).headers["location"].startswith(f"{PATH}?step=language")
