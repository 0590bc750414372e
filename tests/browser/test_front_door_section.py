"""The owner's section about the address, in a real browser: both languages, desktop and phone."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import zxingcpp
from PIL import Image
from playwright.sync_api import expect

from appliance.access.person import Persons
from appliance.network.front_door import FrontDoor
from appliance.network.interfaces import Adapter
from tests.browser.section_page import served, shot
from ui.admin import front_door as front_door_section
from ui.session_link import SessionLink

WORDS = {
    "en-US": ("Address for colleagues", "The address has changed", "Look again", "not connected to a network"),
    "zh-CN": ("同事使用的地址", "地址已改变", "重新查看", "没有连接网络"),
}


class Pc:
    """A PC with adapters that can be pulled."""

    def __init__(self, folder):
        self.adapters = [Adapter("eth0", "192.168.1.20"), Adapter("wlan0", "192.168.1.21"), Adapter("tun0", "10.8.0.2")]
        self.door = FrontDoor(folder / "note", "0.0.0.0", 7860, "", lambda: list(self.adapters))
        self.door._at_start = "http://192.168.1.20:7860"


@pytest.fixture
def pc(tmp_path) -> Pc:
    return Pc(tmp_path)


@pytest.fixture
def url(pc) -> Iterator[str]:
    def fill(demo):
        section = front_door_section.build("en")
        handlers = front_door_section.FrontDoorHandlers(pc.door, SessionLink(Persons(b"x" * 32)))
        handlers.wire(section, demo)

    with served(fill) as url:
        yield url


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_owner_sees_what_to_hand_out(browser, pc, url, tmp_path, locale, width):
    heading, changed, again, no_network = WORDS[locale]
    context = browser.new_context(locale=locale, viewport={"width": width, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    page.goto(url)
    section = page.locator("#front_door")
    expect(section.locator("h2")).to_have_text(heading)
    expect(section.locator(".address")).to_have_text("http://192.168.1.20:7860")
    expect(section).to_contain_text("http://192.168.1.21:7860")
    expect(section).to_contain_text("http://10.8.0.2:7860")
    expect(section).not_to_contain_text(changed)
    code = section.locator("img.code")
    expect(code).to_be_visible()
    page.wait_for_function("() => document.querySelector('img.code').naturalWidth > 0")
    (found,) = zxingcpp.read_barcodes(Image.open(io.BytesIO(code.screenshot())))
    assert found.text == "http://192.168.1.20:7860"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shot(page, tmp_path, "door")
    look = page.get_by_role("button", name=again)
    pc.adapters[:] = [Adapter("eth0", "192.168.1.99")]
    look.click()
    expect(section.locator("[role=alert]")).to_contain_text(changed)
    expect(section.locator(".address")).to_have_text("http://192.168.1.99:7860")
    pc.adapters.clear()
    look.click()
    expect(section.locator("[role=alert]")).to_contain_text(no_network)
    expect(section.locator("img.code")).to_have_count(0)
    assert errors == []
    context.close()
