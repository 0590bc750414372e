"""The owner's section about models in a real browser: both languages, desktop and phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from appliance.access.person import Persons
from appliance.base.errors import EngineFailed
from appliance.models import model_library
from appliance.models.model_download import Offer
from tests.browser.section_page import served, shot
from tests.system.program import Program
from tests.unit.models.test_model_file import write
from tests.unit.models.test_model_library import Shelf
from tests.unit.own_hub import FILE, REPO, OwnHub, own_hub
from ui.admin import models as models_section
from ui.admin.model_upload import make_upload_router
from ui.session_link import SessionLink
from ui.site.interface import ASSETS

WORDS = {
    "en-US": (
        "answers now",
        "answers now. The conversations",
        "goes on answering",
        "is here and whole",
        "is a web page",
    ),
    "zh-CN": ("正在使用", "原有对话可以继续", "仍由原来的模型回答", "已完整下载", "是网页"),
}


@pytest.fixture
def hub(tmp_path) -> Iterator[OwnHub]:
    with own_hub(write(tmp_path / "made.gguf").read_bytes() + bytes(2**21)) as running:
        yield running


@pytest.fixture
def shelf(tmp_path, hub, monkeypatch) -> Shelf:
    monkeypatch.setattr(model_library, "OFFERS", (Offer(REPO, FILE, 10**6, "apache-2.0", 10**6),))
    monkeypatch.setattr(model_library, "available_ram_bytes", lambda: 10**12)
    shelf = Shelf(tmp_path, download_endpoint=hub.url)
    shelf.present = shelf.put("first.gguf")
    shelf.put("second.gguf")
    (shelf.paths.models / "page.gguf").write_bytes(b"<html>" + b" " * 200)
    return shelf


@pytest.fixture
def url(shelf) -> Iterator[str]:
    def fill(demo):
        section = models_section.build("en")
        models_section.ModelsHandlers(shelf.library, SessionLink(Persons(b"x" * 32))).wire(section, demo)

    script = (ASSETS / "upload.js").read_text(encoding="utf-8")
    with served(fill, [make_upload_router(shelf.library)], script) as url:
        yield url


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_another_model_a_download_and_a_file_from_elsewhere(browser, shelf, hub, url, tmp_path, locale, width):
    mark, changed, kept, whole, web_page = WORDS[locale]
    context = browser.new_context(locale=locale, viewport={"width": width, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    models, news = page.locator("#models"), page.locator("#models_news")
    expect(models.locator("section").first).to_contain_text("first")
    expect(models.locator("section").first).to_contain_text(mark)
    expect(models).to_contain_text(web_page)
    expect(models).not_to_contain_text(str(tmp_path))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shot(page, tmp_path, "models")

    page.locator("#models_choice").get_by_text("second").click()
    page.click("#models_use")
    expect(news).to_contain_text(changed)
    expect(models.locator("section").first).to_contain_text("second")
    assert [path.name for path in shelf.used] == ["second.gguf"]

    shelf.error = EngineFailed("it ended")
    page.locator("#models_choice").get_by_text("first").click()
    page.click("#models_use")
    expect(news).to_contain_text(kept)
    expect(models.locator("section").first).to_contain_text("second")

    hub.holds_after = 2**20
    page.click("#models_download")
    expect(news).to_contain_text(FILE)
    hub.released.set()
    expect(news).to_contain_text(whole, timeout=20_000)
    expect(models).to_contain_text(Path(FILE).stem)

    stick = write(tmp_path / "from-a-stick.gguf")
    page.locator("#models_path textarea, #models_path input").fill(str(stick))
    page.click("#models_bring")
    expect(models).to_contain_text("from-a-stick")

    sent = [write(tmp_path / name) for name in ("sent-one.gguf", "sent-two.gguf")]
    page.set_input_files("input[data-upload]", [str(path) for path in sent])
    expect(models).to_contain_text("sent-one")
    expect(models).to_contain_text("sent-two")
    page.set_input_files("input[data-upload]", {"name": "p.gguf", "mimeType": "x/y", "buffer": b"<html>" + b" " * 900})
    expect(page.locator(".upload-said")).to_contain_text(web_page)
    shot(page, tmp_path, "models-later")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert errors == []
    context.close()


def test_a_second_look_finds_the_download_of_another_tab(browser, shelf, hub, url):
    hub.holds_after = 2**20
    context = browser.new_context(locale="en-US")
    first, second = context.new_page(), context.new_page()
    first.goto(url)
    expect(first.locator("#models section").first).to_be_visible()
    first.click("#models_download")
    second.goto(url)
    expect(second.locator("#models_news")).to_contain_text(FILE)
    second.click("#models_stop")
    expect(first.locator("#models_news")).to_contain_text("was stopped")
    assert (shelf.paths.models / FILE).exists() is False
    context.close()


def test_on_the_admin_page_of_the_running_program(browser, tmp_path):
    program = Program(tmp_path / "data", backend="echo").wait_ready()
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.goto(program.owners_link("/admin/en/#models"))
        models, news = page.locator("#models"), page.locator("#models_news")
        expect(models).to_contain_text("SmolLM2", timeout=20_000)
        page.locator("#models_path textarea, #models_path input").fill(str(write(tmp_path / "from-a-stick.gguf")))
        page.click("#models_bring")
        expect(models).to_contain_text("from-a-stick")
        page.set_input_files("input[data-upload]", str(write(tmp_path / "sent.gguf")))
        expect(models).to_contain_text("sent")
        page.locator("#models_choice").get_by_text("from-a-stick").click()
        page.click("#models_use")
        expect(news).to_contain_text("Echo answers now", timeout=20_000)
        expect(models.locator("section").first).to_contain_text("answers now")
        expect(models.locator("section").first).to_contain_text("from-a-stick")
    finally:
        context.close()
        program.close()
