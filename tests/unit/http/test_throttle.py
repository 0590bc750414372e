"""What one address may take of the web process: nobody else waits for it, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from starlette.responses import PlainTextResponse

from appliance.http.throttle import BURST_S, MAX_WAITING, Throttle
from tests.unit.engine.waiting import until


class Clock:
    """Sleeping is what makes time pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


def busy(cpu_s: float) -> None:
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass


def throttled(app, share=0.1, **parts):
    clock = Clock()
    parts = {"clock": lambda: clock.now_s, "sleep": clock.sleep} | parts
    return Throttle(app, lambda: share, lambda code: f"sentence {code}", **parts), clock


async def get(app, address="10.0.0.1", **parts):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://pc") as http:
        return await http.request(parts.pop("method", "GET"), "/", **parts)


async def test_whoever_used_up_their_share_waits_and_nobody_else_does(monkeypatch):
    monkeypatch.setattr("appliance.http.throttle.BURST_S", 0.1)

    async def app(scope, receive, send):
        busy(0.03)
        await PlainTextResponse("done")(scope, receive, send)

    throttle, clock = throttled(app)
    for _ in range(10):
        assert (await get(throttle)).text == "done"
    assert 1.5 < sum(clock.slept_s) < 4  # 0.3 s of CPU, 0.1 s and the last one's at once, the rest at a tenth of a core
    n_slept = len(clock.slept_s)
    assert (await get(throttle, "10.0.0.2")).text == "done"
    assert len(clock.slept_s) == n_slept


async def test_what_a_request_does_between_its_waits_is_counted_and_what_it_writes_is_not(monkeypatch):
    monkeypatch.setattr("appliance.http.throttle.BURST_S", 0.0)

    async def app(scope, receive, send):
        for _ in range(4):
            busy(0.01)
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        busy(0.2)
        await send({"type": "http.response.body", "body": b"written"})

    throttle, clock = throttled(app)
    assert (await get(throttle)).text == "written"
    await get(throttle)
    assert 0.35 < sum(clock.slept_s) < 1


async def test_the_time_an_address_had_to_itself_is_made_good():
    throttle, clock = throttled(PlainTextResponse("done"))
    account = throttle._account("10.0.0.1")
    account.used_s = 2 * BURST_S
    clock.now_s += 100
    await get(throttle)
    assert clock.slept_s == []


async def test_an_announced_body_counts_before_it_is_read():
    throttle, clock = throttled(PlainTextResponse("done"))
    throttle._account("10.0.0.1").used_s = BURST_S
    await get(throttle, method="POST", content=b"x" * 1_000_000)
    await get(throttle)
    assert sum(clock.slept_s) > 0.015


async def test_too_many_that_wait_are_told_so_and_the_others_are_answered_in_turn():
    go_on = asyncio.Event()
    throttle, _ = throttled(PlainTextResponse("done"), sleep=lambda seconds: go_on.wait(), clock=lambda: now_s)
    now_s = 0.0
    throttle._account("10.0.0.1").used_s = 2 * BURST_S
    waiting = [asyncio.create_task(get(throttle)) for _ in range(MAX_WAITING)]
    await until(lambda: throttle._account("10.0.0.1").n_waiting == MAX_WAITING)
    refused = await get(throttle)
    assert refused.status_code == 429
    assert refused.json() == {"detail": "sentence too_fast"}
    assert (await get(throttle, "10.0.0.2")).status_code == 200
    now_s = 1000.0
    go_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_without_a_share_nobody_waits():
    throttle, clock = throttled(PlainTextResponse("done"), share=0)
    throttle._account("10.0.0.1").used_s = 100
    assert (await get(throttle)).text == "done"
    assert clock.slept_s == []


async def test_who_leaves_is_counted_no_longer_and_the_work_hears_of_it():
    ended: list[str] = []

    async def app(scope, receive, send):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    throttle, _ = throttled(app)
    asking = asyncio.create_task(get(throttle))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended == ["cancelled"]
    assert throttle._account("10.0.0.1").n_waiting == 0


async def test_the_address_that_was_away_longest_is_forgotten_first():
    throttle, _ = throttled(PlainTextResponse("done"))
    for number in range(1200):
        throttle._account(f"10.0.{number // 250}.{number % 250}")
    assert len(throttle._accounts) == 1000
    assert "10.0.0.0" not in throttle._accounts
