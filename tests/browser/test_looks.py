"""What makes the page usable for everybody: axe-core's rules, visible focus, no unwanted motion, phone width."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.driver import LONG, Chat, Visit
from tests.system.program import Program

ANSWER = "# Title\n\nSome `code` and a [link](http://office.test/).\n\n```python\nx = 1  # one\n```\n\n"
ANSWER += "|a|b|\n|-|-|\n|1|2|\n\n$$x$$"


def serious(chat: Chat) -> list[str]:
    """What axe-core finds that keeps people out: rule, element, why."""
    chat.page.wait_for_timeout(400)  # what fades in has its contrast only then
    found = Axe().run(chat.page).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("locale", "width"), [("en-US", 1280), ("zh-CN", 360)])
def test_axe_finds_nothing_serious(app: Program, visit: Visit, locale: str, width: int, scheme: str) -> None:
    chat = visit(app, locale=locale, width=width, color_scheme=scheme)
    assert serious(chat) == []
    chat.ask(ANSWER)
    chat.ask("two")
    assert serious(chat) == []
    if chat.js("document.documentElement.dataset.side") != "open":
        chat.click("menu")
    chat.page.locator("#wishes summary").click()
    chat.page.locator("#conversations .more").click()
    assert serious(chat) == []
    chat.page.keyboard.press("Escape")
    if width == 360:
        chat.page.keyboard.press("Escape")
    chat.page.locator("#conversation .user-row").last.hover()
    chat.page.locator("#conversation .user-row [data-act=edit]").last.click()
    assert serious(chat) == []


def test_axe_finds_nothing_serious_while_people_wait(narrow_app: Program, visit: Visit) -> None:
    phone: dict[str, object] = {"locale": "zh-CN", "width": 360, "height": 740}
    inside = [visit(narrow_app), visit(narrow_app, color_scheme="dark"), visit(narrow_app, **phone)]
    outside = [visit(narrow_app), visit(narrow_app, color_scheme="dark", **phone)]
    for chat in inside:
        chat.send(LONG)
    for chat in inside[1:]:
        chat.page.wait_for_selector("html[data-in-line=yes]")
    for chat in outside:
        chat.send("let me in")
        chat.page.wait_for_selector("#when_free:visible")
    assert [serious(chat) for chat in [*inside, *outside]] == [[]] * 5
    for chat in inside:
        chat.click("stop")


def test_everything_can_be_reached_by_keyboard_and_shows_where_it_is(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("hello")
    chat.page.locator("#conversation [data-act=copy]").first.wait_for(state="attached")
    chat.page.locator("body").evaluate("() => document.activeElement.blur()")
    reached = set()
    for _ in range(24):
        chat.page.keyboard.press("Tab")
        name, shows = chat.js(
            """(() => {
              const at = document.activeElement;
              const ring = getComputedStyle(at.matches("textarea") ? at.closest("#writing") : at);
              const name = at.id || at.dataset.act || at.className || at.closest("[id]")?.id || at.tagName;
              return [name, ring.outlineStyle !== "none" || ring.boxShadow !== "none"];
            })()"""
        )
        if name != "BODY":
            assert shows, name
            reached.add(name)
    assert {"find", "hide", "forget", "new_chat", "language", "copy", "edit", "good", "again", "copy_all"} <= reached


def test_nothing_moves_where_motion_is_unwanted(app: Program, visit: Visit) -> None:
    chat = visit(app, reduced_motion="reduce")
    chat.send("something that is answered for a while, long enough to look at it")
    chat.wait_for("writing")
    assert chat.js("document.getAnimations().filter((one) => one.playState === 'running').length") == 0
    chat.wait_for("idle")


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_no_label_is_cut_off_on_a_small_phone(app: Program, visit: Visit, locale: str) -> None:
    chat = visit(app, locale=locale, width=360, height=640)
    cut = """Array.from(document.querySelectorAll("button")).filter((button) => button.offsetParent
      && getComputedStyle(button).fontSize !== "0px" && !button.matches(".open")
      && (button.scrollWidth > button.clientWidth + 1 || button.getBoundingClientRect().right > 360))
      .map((button) => button.id || button.textContent)"""
    assert chat.js(cut) == []
    chat.ask("hello")
    assert chat.js(cut) == []
    chat.click("menu")
    chat.page.wait_for_timeout(300)
    assert chat.js(cut) == []
    assert chat.js("document.scrollingElement.scrollWidth") == 360


def test_the_scripts_stay_small(app: Program, visit: Visit) -> None:
    scripts = "Array.from(document.querySelectorAll('head script:not([src])'), (script) => script.textContent)"
    ours = f"{scripts}.filter((text) => /office-?chat/i.test(text) && !text.includes('gradio_config ='))"
    chat = visit(app)
    assert chat.js(f"{ours}.length") == 4
    assert chat.js(f"new Blob({ours}).size") < 33_000
