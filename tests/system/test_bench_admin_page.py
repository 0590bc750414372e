"""What the bench takes for an open admin page asks for what the page's timers ask for."""

from __future__ import annotations

import asyncio

from bench.clients import AdminPage
from tests.system.program import Program


async def test_every_timer_of_the_admin_page_is_asked_for(echo: Program) -> None:
    page = await AdminPage(echo.url, echo.owners_link("/").removeprefix(echo.url)).open()
    assert sorted(task.get_coro().cr_frame.f_locals["every_s"] for task in page._asking) == [2, 2, 5, 5, 10]
    await asyncio.sleep(2.5)
    assert not any(task.done() for task in page._asking)
    await page.close()
