"""Jobs that come round again."""

from __future__ import annotations

import asyncio
import contextlib

from appliance.base.janitor import Job, keep_house


async def run_for(seconds: float, *jobs: Job) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await keep_house(jobs)


async def test_a_job_that_fails_stops_neither_itself_nor_the_others(monkeypatch, caplog):
    monkeypatch.setattr("appliance.base.janitor.TICK_S", 0.001)
    done: list[str] = []

    def broken() -> None:
        done.append("broken")
        raise RuntimeError("a secret")

    async def slow() -> None:
        done.append("slow")

    await run_for(0.1, Job("broken", 0, broken), Job("slow", 0, slow))
    assert done.count("broken") > 2
    assert done.count("slow") > 2
    assert "broken" in caplog.text
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_job_comes_round_no_more_often_than_it_wants_to(monkeypatch):
    monkeypatch.setattr("appliance.base.janitor.TICK_S", 0.001)
    done: list[str] = []
    await run_for(0.1, Job("rare", 3600, lambda: done.append("rare")), Job("often", 0, lambda: done.append("often")))
    assert done.count("rare") == 1
    assert done.count("often") > 2
