"""What one address may take of the web process: nobody else waits for it, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from starlette.responses import PlainTextResponse

from appliance.http.throttle import BURST_S, MAX_UNANSWERED, MAX_WAITING, Accounts, Throttle, free_of_charge
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


class Throttled:
    """An app behind the throttle, with its accounts and a clock of its own."""

    def __init__(self, app, share=0.1, sleep=None, clock=None, is_owners=lambda connection: False):
        self.clock = Clock()
        self.share = share
        self.accounts = Accounts(lambda: self.share, is_owners, clock or (lambda: self.clock.now_s))
        self._app = Throttle(app, self.accounts, lambda code: f"sentence {code}", sleep or self.clock.sleep)

    async def __call__(self, scope, receive, send):
        await self._app(scope, receive, send)

    @property
    def account(self):
        return self.accounts.of_address("10.0.0.1")


def throttled(app, **parts):
    made = Throttled(app, **parts)
    return made, made.clock


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
    throttle.account.used_s = 2 * BURST_S
    clock.now_s += 100
    await get(throttle)
    assert clock.slept_s == []


async def test_a_body_that_was_held_back_waits_again_before_it_is_read():
    """Many of them, let in while they cost nothing, would otherwise be judged all at once."""
    read: list[bytes] = []
    bodies: asyncio.Queue[dict] = asyncio.Queue()

    async def app(scope, receive, send):
        read.append((await receive())["body"])
        read.append((await receive())["body"])
        await PlainTextResponse("done")(scope, receive, send)

    async def send(message):
        pass

    throttle, clock = throttled(app)
    scope = {"type": "http", "client": ("10.0.0.1", 1), "headers": [], "method": "POST", "path": "/"}
    asking = asyncio.create_task(throttle(scope, bodies.get, send))
    bodies.put_nowait({"type": "http.request", "body": b"begun", "more_body": True})
    await until(lambda: read == [b"begun"])
    throttle.account.used_s = BURST_S + 0.3
    bodies.put_nowait({"type": "http.request", "body": b" and ended", "more_body": False})
    await asking
    assert read == [b"begun", b" and ended"]
    assert 2.5 < sum(clock.slept_s) < 3.5


async def test_no_address_has_more_than_so_many_requests_without_an_answer():
    go_on = asyncio.Event()

    async def app(scope, receive, send):
        await go_on.wait()
        await PlainTextResponse("done")(scope, receive, send)

    throttle, _ = throttled(app)
    asked = [asyncio.create_task(get(throttle)) for _ in range(MAX_UNANSWERED)]
    await until(lambda: throttle.account.n_unanswered == MAX_UNANSWERED)
    assert (await get(throttle)).status_code == 429
    assert throttle.account.n_unanswered == MAX_UNANSWERED
    go_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
    assert throttle.account.n_unanswered == 0
    assert (await get(throttle)).status_code == 200


async def test_nobody_at_the_owners_address_keeps_the_owner_out():
    throttle, clock = throttled(PlainTextResponse("done"), is_owners=lambda connection: "owner" in connection.cookies)
    throttle.account.used_s = 100
    await get(throttle, headers={"cookie": "owner=1"})
    assert clock.slept_s == []
    await get(throttle, headers={"cookie": "another=1"})
    assert sum(clock.slept_s) > 100


async def test_another_share_holds_for_those_who_wait_already():
    throttle, clock = throttled(PlainTextResponse("done"), share=0.0001)
    throttle.account.used_s = 2 * BURST_S

    async def sleep(seconds):
        await clock.sleep(seconds)
        throttle.share = 0

    throttle._app._sleep = sleep
    assert (await get(throttle)).text == "done"
    assert clock.slept_s == [1.0]


async def test_what_the_server_computes_to_read_counts_too():
    throttle, clock = throttled(PlainTextResponse("done"))
    assert throttle.accounts.charge(None, "10.0.0.1", BURST_S) == 0
    assert throttle.accounts.charge(None, "10.0.0.1", 0.1) == pytest.approx(1.0)
    await get(throttle)
    assert sum(clock.slept_s) == pytest.approx(1.0, abs=0.1)


async def test_a_model_the_owner_sends_is_free():
    async def app(scope, receive, send):
        free_of_charge(scope)
        busy(0.05)
        assert throttle.accounts.charge(scope, "10.0.0.1", 100) == 0
        await PlainTextResponse("done")(scope, receive, send)

    throttle, _ = throttled(app)
    await get(throttle)
    assert throttle.account.used_s < 0.02


async def test_a_part_in_a_task_of_its_own_pays_for_nobody_else():
    async def app(scope, receive, send):
        async def answer():
            busy(0.05)  # as somebody else's work between the two
            await PlainTextResponse("done")(scope, receive, send)

        await asyncio.create_task(answer())

    throttle, _ = throttled(app)
    await get(throttle)
    assert throttle.account.used_s < 0.02


async def test_too_many_that_wait_are_told_so_and_the_others_are_answered_in_turn():
    go_on = asyncio.Event()
    throttle, _ = throttled(PlainTextResponse("done"), sleep=lambda seconds: go_on.wait(), clock=lambda: now_s)
    now_s = 0.0
    throttle.account.used_s = 2 * BURST_S
    waiting = [asyncio.create_task(get(throttle)) for _ in range(MAX_WAITING)]
    await until(lambda: throttle.account.n_waiting == MAX_WAITING)
    refused = await get(throttle)
    assert refused.status_code == 429
    assert refused.json() == {"detail": "sentence too_fast"}
    assert (await get(throttle, "10.0.0.2")).status_code == 200
    now_s = 1000.0
    go_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_without_a_share_nobody_waits():
    throttle, clock = throttled(PlainTextResponse("done"), share=0)
    throttle.account.used_s = 100
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
    assert throttle.account.n_waiting == 0


async def test_the_address_that_was_away_longest_is_forgotten_first():
    throttle, _ = throttled(PlainTextResponse("done"))
    first = throttle.account
    for number in range(1200):
        throttle.accounts.of_address(f"10.0.{1 + number // 250}.{number % 250}")
    assert len(throttle.accounts._accounts) == 1000
    assert throttle.account is not first
