"""The form of the settings and its routes: every setting is there, a bad value is named in the reader's language."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from appliance.settings.files import Sources, find_sources, read_settings
from appliance.settings.schema import Settings
from appliance.settings.store import SettingsStore
from ui.admin.settings import form_html, make_settings_router


class Site:
    def __init__(self, folder: Path, sources: Sources) -> None:
        self.store = SettingsStore(read_settings(sources), sources)
        self.path = folder / "office-chat.toml"
        app = FastAPI()
        app.include_router(make_settings_router(SimpleNamespace(settings=self.store)))
        self._app = app

    async def post(self, path: str, **body: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, json=body)

    async def saved(self) -> dict[str, str]:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/admin/settings")).json()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, find_sources({"OFFICE_CHAT_QUEUE_SIZE": "3"}, {"data_dir": str(tmp_path)}))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_setting_is_in_the_form_with_unit_default_and_when_it_acts(site: Site, language: str) -> None:
    html = form_html(language, site.store.shown())
    for key in Settings.model_fields:
        assert f'data-setting="{key}"' in html
        assert f'for="set-{key}"' in html
    assert "\n" not in html
    assert html.count('class="unit"') == len(Settings.model_fields)
    assert ("acts at once" if language == "en" else "立即生效") in html
    assert html.count(" disabled") == 2  # the environment has the one, the command line the data folder


async def test_what_the_owner_writes_cannot_become_part_of_the_page(site: Site) -> None:
    await site.store.save({"system_prompt": '</textarea><script>x</script>\n\n"quoted"', "notice": "<b>&"}, {})
    html = form_html("en", site.store.shown())
    assert "<script>" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "&#10;&#10;&quot;quoted&quot;" in html


@pytest.mark.parametrize(
    ("language", "sentence"),
    [("en", "Expected: a whole number from 1 to 64"), ("zh", "应为：1 到 64 的整数")],
)
async def test_a_bad_value_is_named_while_it_is_typed(site: Site, language: str, sentence: str) -> None:
    answer = await site.post("/admin/settings/check", lang=language, changes={"max_batch_size": "lots"})
    assert answer.json() == {"problems": {"max_batch_size": sentence}}
    answer = await site.post("/admin/settings/check", lang=language, changes={"max_batch_size": "4"})
    assert answer.json() == {"problems": {}}


async def test_saving_says_when_it_acts_and_shows_what_is_there(site: Site) -> None:
    answer = await site.post("/admin/settings", changes={"notice": "Lunch at 12"}, seen={"notice": ""})
    assert (answer.status_code, answer.json()["said"]) == (200, "Saved. It acts already.")
    assert answer.json()["rows"]["notice"]["saved"] == "Lunch at 12"
    answer = await site.post("/admin/settings", changes={"max_batch_size": "4"}, seen={})
    assert answer.json()["said"] == "Saved. It acts at the next start."
    assert "In use until the restart: 16" in answer.json()["rows"]["max_batch_size"]["note"]
    assert (await site.saved())["notice"] == "Lunch at 12"


async def test_a_bad_value_among_good_ones_saves_none(site: Site) -> None:
    answer = await site.post("/admin/settings", changes={"notice": "x", "temperature": "9"}, seen={})
    assert answer.status_code == 422
    assert answer.json()["problems"] == {"temperature": "Expected: a number from 0 to 5"}
    assert not site.path.exists()


async def test_the_second_of_two_admins_hears_whose_change_it_is_about(site: Site) -> None:
    for value in ("ours", "theirs"):
        answer = await site.post("/admin/settings", lang="zh", changes={"notice": value}, seen={"notice": ""})
    assert answer.status_code == 409
    assert "公告" in answer.json()["said"]
    assert answer.json()["rows"]["notice"]["saved"] == "ours"


async def test_what_the_environment_decides_cannot_be_saved(site: Site) -> None:
    answer = await site.post("/admin/settings", changes={"queue_size": "9"}, seen={})
    assert (answer.status_code, list(answer.json()["problems"])) == (422, ["queue_size"])


@pytest.mark.parametrize(
    "body",
    [{}, {"changes": []}, {"changes": {"port": 1}}, {"changes": {"port": "1" * 30_000}}, {"changes": {}, "x": 1}],
)
async def test_what_is_no_change_is_refused(site: Site, body: dict[str, Any]) -> None:
    for path in ("/admin/settings", "/admin/settings/check"):
        assert (await site.post(path, **body)).status_code == 422


async def test_a_broken_file_is_said_and_left_alone(site: Site) -> None:
    site.path.write_text("port = \n")
    answer = await site.post("/admin/settings", changes={"notice": "x"}, seen={})
    assert answer.status_code == 422
    assert "cannot be read" in answer.json()["said"]
    assert site.path.read_text() == "port = \n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = \n", "第 1 行不是有效的 TOML"),
        ("\nprot = 1\n", "没有设置项 prot"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
async def test_what_is_wrong_with_the_file_is_said_in_chinese_too(site: Site, text: str | bytes, said: str) -> None:
    site.path.write_bytes(text.encode() if isinstance(text, str) else text)
    answer = (await site.post("/admin/settings", lang="zh", changes={"notice": "x"}, seen={})).json()["said"]
    assert said in answer
    assert "expected" not in answer
    assert "there is no" not in answer


@pytest.mark.parametrize(("value", "status"), [("0", 200), ("4", 200), ("-1", 422), ("999", 422), ("four", 422)])
async def test_case_57_a_number_of_threads_that_cannot_be_is_refused(site: Site, value: str, status: int) -> None:
    answer = await site.post("/admin/settings", changes={"n_threads": value}, seen={})
    assert answer.status_code == status
    assert (await site.saved())["n_threads"] == (value if status == 200 else "0")


async def test_tasks_that_cannot_be_read_are_named_while_they_are_typed(site: Site) -> None:
    for lang, said in (("en", "separated by |"), ("zh", "用 | 分隔")):
        answer = await site.post("/admin/settings/check", lang=lang, changes={"presets": "weekly | no colon"})
        assert said in answer.json()["problems"]["presets"]
