"""Takes the pictures of docs/: `python -m tests.browser.screenshots docs`. To be looked at one by one afterwards.

The conversations in them are kept ones, put into the browser's store, so that every run shows the same words.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from playwright import sync_api

from tests.browser.conftest import FLAGS, HOST, page_url
from tests.browser.driver import Chat
from tests.system.program import Program

CODE = """Here is a short function, with an example:

```python
def total(prices, tax=0.2):
    \"\"\"The sum of all prices with tax, rounded to cents.\"\"\"
    return round(sum(prices) * (1 + tax), 2)

print(total([19.90, 5.10]))  # 30.0
```

| prices | without tax | with tax |
|---|---:|---:|
| 19.90, 5.10 | 25.00 | 30.00 |

In general: $$\\text{total} = (1 + t)\\sum_i p_i$$"""
KEPT = {
    "en-US": [
        ("Total of a list of prices", "Write a Python function for the total of a list of prices, with tax.", CODE),
        ("Reminder about invoice 1042", "Write a polite reminder about invoice 1042.", "Dear Ms Lindt, …"),
        ("Ideas for the team meeting", "Five ideas for a short team meeting?", "1. …"),
    ],
    "zh-CN": [
        (
            "会议纪要怎么写",
            "会议纪要一般包括哪些部分？",
            "一般包括：\n\n1. **时间、地点、出席人**\n2. 议题和讨论要点\n3. 决定的事项\n4. 下一步：谁、做什么",
        ),
        ("周报：第 48 周", "请根据以下要点写一份周报。", "**本周完成** …"),
    ],
}


def fill(chat: Chat, locale: str) -> None:
    """Put the kept conversations into this browser."""
    for age, (title, question, text) in enumerate(KEPT[locale]):
        turn = {"question": question, "text": text, "notices": [], "more": False, "origin": "model", "saved_at": None}
        entry = {"title": title, "named": True, "pinned": age == 1, "at": 1_700_000_000_000 - age, "turns": [turn]}
        chat.page.evaluate(
            "([key, entry]) => localStorage.setItem(key, entry)",
            [f"office-chat-c-{'abcdefgh' * 3}{age}", json.dumps(entry)],
        )


def main(folder: Path) -> None:
    """Start programs and a browser, and take them all."""
    with tempfile.TemporaryDirectory() as scratch, sync_api.sync_playwright() as playwright:
        settings: dict[str, object] = {"allowed_hosts": HOST}
        wide = Program(Path(scratch) / "wide", **settings).wait_ready()
        settings["backend"] = "echo"
        narrow = Program(
            Path(scratch) / "narrow", **settings, max_batch_size=1, look_ahead=0, queue_size=1
        ).wait_ready()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)

        def visit(app: Program, locale: str = "en-US", width: int = 1280, scheme: str = "light") -> Chat:
            height = 800 if width > 600 else 740
            context = browser.new_context(
                locale=locale, viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
            )
            return Chat(context.new_page(), page_url(app)).open()

        def take(chat: Chat, name: str) -> None:
            chat.page.mouse.move(640, 5)
            chat.page.wait_for_timeout(500)
            chat.page.screenshot(path=folder / f"{name}.png")

        try:
            chat = visit(wide)
            take(chat, "page-empty")
            fill(chat, "en-US")
            chat.page.reload()
            chat.ready()
            chat.page.locator("#conversations .open").nth(1).click()
            chat.page.wait_for_selector("#conversation .katex")
            take(chat, "screenshot")
            chat.page.locator(".more").nth(1).click()
            take(chat, "page-history")
            chat.page.keyboard.press("Escape")
            chat.page.locator("#conversation .user-row").hover()
            chat.page.locator("#conversation [data-act=edit]").click()
            take(chat, "page-edit")
            dark = visit(wide, scheme="dark")
            fill(dark, "en-US")
            dark.page.reload()
            dark.ready()
            dark.page.locator("#conversations .open").nth(1).click()
            dark.page.wait_for_selector("#conversation .katex")
            take(dark, "page-dark")
            for scheme in ("light", "dark"):
                phone = visit(wide, locale="zh-CN", width=360, scheme=scheme)
                fill(phone, "zh-CN")
                take(phone, f"phone-empty-{scheme}")
                phone.page.reload()
                phone.ready()
                phone.click("menu")
                take(phone, f"phone-history-{scheme}")
                phone.page.locator("#conversations .open").nth(1).click()
                phone.page.wait_for_selector("#conversation .bot-row")
                take(phone, f"phone-{scheme}")
            first, second, third = (visit(narrow) for _ in range(3))
            first.send("This takes a while to write. " * 10)
            first.wait_writing_text()
            second.send("What should I bring to the meeting tomorrow?")
            second.page.wait_for_selector("html[data-in-line=yes]")
            take(second, "page-waiting")
            third.send("And what should I bring?")
            third.page.wait_for_selector("#when_free:visible")
            take(third, "page-busy")
        finally:
            browser.close()
            wide.close()
            narrow.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
