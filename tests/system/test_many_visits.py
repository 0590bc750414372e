"""Visits leave nothing behind: case 33."""

from __future__ import annotations

import asyncio

import psutil

from tests.system.page_client import Page


async def visit(program, number: int) -> None:
    page = await Page(program).open()
    try:
        await page.ask(f"visit {number}")
        await page.conversation()
    finally:
        await page.http.aclose()


async def test_two_hundred_visits_leave_neither_memory_nor_files_behind(start):
    program = start(session_ttl_s=10, quick_answers=True, answer_cache_scope="first").wait_ready()
    web = psutil.Process(program.process.pid)
    for number in range(20):
        await visit(program, number)
    await asyncio.sleep(1)
    rss, n_files = web.memory_info().rss, web.num_fds()
    for number in range(200):
        await visit(program, 100 + number)
    await asyncio.sleep(14)  # the TTL, and what comes after it
    assert web.memory_info().rss - rss < 50 * 2**20
    assert abs(web.num_fds() - n_files) <= 10
    async with Page(program).http as http:
        metrics = (await http.get("/metrics")).text
    (line,) = [line for line in metrics.splitlines() if line.startswith("office_chat_conversations ")]
    assert float(line.split()[1]) == 0
