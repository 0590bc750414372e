"""How many people a PC serves comfortably: found by halving, measured on an engine, promised in people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance import self_test
from appliance.engine.client import EngineClient
from appliance.engine.request import EngineInfo, FinishReason
from appliance.errors import ApplianceError
from appliance.paths import Paths
from appliance.self_test import Crowd, Level, SelfTest, SelfTestState, find_limit, read_verdict, with_waiting
from appliance.settings import Settings
from tests.unit.engine.test_client import engine
from tests.unit.engine.waiting import until
from tests.unit.engine_double import ScriptedEngine, settle


def level(n_people: int, *, limit: int) -> Level:
    """A PC on which `limit` people read comfortably."""
    is_fine = n_people <= limit
    return Level(n_people, 8.0, 6.0 if is_fine else 3.0, 1.0)


@pytest.mark.parametrize("n_slots", [1, 4, 16, 64])
async def test_the_limit_is_found_wherever_it_is(n_slots):
    for limit in range(n_slots + 1):
        asked: list[int] = []

        async def measure(n_people: int, limit: int = limit, asked: list[int] = asked) -> Level:
            asked.append(n_people)
            return level(n_people, limit=limit)

        found = await find_limit(measure, n_slots)
        assert found.is_comfortable is (limit > 0)
        assert 0 <= max(1, limit) - found.n_people <= max(0, n_slots // 16 - 1)
        assert len(asked) <= 6


@pytest.mark.parametrize(("slow", "ttft", "is_comfortable"), [(4.0, 2.9, True), (3.9, 1.0, False), (9.0, 3.0, False)])
def test_comfortable_is_four_tokens_a_second_and_a_first_word_within_three(slow, ttft, is_comfortable):
    assert Level(5, 10.0, slow, ttft).is_comfortable is is_comfortable


def test_with_waiting_come_those_whom_a_place_comes_free_for_within_fifteen_seconds():
    assert with_waiting(Level(12, 6.0, 5.0, 1.0)) == 12 + 10
    assert with_waiting(Level(1, 2.0, 1.0, 1.0)) == 1


async def test_a_crowd_on_an_engine_is_measured():
    async with engine(n_slots=4, echo_step_s=0.02) as (client, _asker):
        await client.wait_ready()
        measured = await Crowd(client, "Be brief.").measure(4, warm_s=0.2, level_s=1.5)
        assert measured.n_people == 4
        assert 0 < measured.slow_per_s <= measured.each_per_s <= 50
        assert measured.ttft_p90_s > 0
        await until(lambda: client.n_running == 0)


async def test_an_engine_that_fails_ends_the_measurement():
    double = ScriptedEngine()
    measuring = asyncio.create_task(Crowd(double, "x").measure(1))
    await settle()
    double.last.finish(FinishReason.ERROR, "engine_failed")
    with pytest.raises(ApplianceError, match="failed"):
        await measuring


async def test_what_was_asked_is_stopped_with_the_measurement():
    double = ScriptedEngine()
    measuring = asyncio.create_task(Crowd(double, "x").measure(3))
    await settle()
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert [stream.n_aborts for stream in double.streams] == [1, 1, 1]


async def test_questions_are_nobodys_and_leave_no_state_behind():
    double = ScriptedEngine()
    measuring = asyncio.create_task(Crowd(double, "Be brief.").measure(2))
    await settle()
    requests = [stream.request for stream in double.streams]
    assert len({request.person for request in requests}) == 2
    assert {request.conversation for request in requests} == {""}
    assert len({request.messages for request in requests}) == 2
    measuring.cancel()
    await asyncio.wait({measuring})


class Pc:
    """A program with the echo engine."""

    def __init__(self, client: EngineClient) -> None:
        self.engine = client
        self.settings = Settings(backend="echo")
        self.model_source: Path | None = None

    async def use_model(self, _source: Path) -> EngineInfo:
        raise AssertionError("there is no model to load")


@asynccontextmanager
async def pc(tmp_path, monkeypatch, **config: object) -> AsyncIterator[SelfTest]:
    monkeypatch.setattr(self_test, "_WARM_S", 0.1)
    monkeypatch.setattr(Crowd.measure, "__defaults__", (0.1, 0.8))
    paths = Paths(tmp_path)
    async with engine(**config) as (client, _asker):
        await client.wait_ready()
        yield SelfTest(Pc(client), paths)


async def test_a_quick_pc_is_promised_every_slot_and_the_promise_is_remembered(tmp_path, monkeypatch):
    async with pc(tmp_path, monkeypatch, n_slots=2, echo_step_s=0.01) as test:
        assert test.verdict is None
        test.begin(tune=True)
        await test.wait()
        assert test.state == SelfTestState("done", 1.0)
        assert test.verdict is not None
        assert (test.verdict.people, test.verdict.model_name) == (2, "Echo")
        assert test.verdict.with_waiting > 2
        assert test.verdict.free_memory_bytes > 0
        assert test.verdict.free_disk_bytes > 0
        assert test.is_of_this_model
        assert read_verdict(tmp_path / "self-test.json") == test.verdict


async def test_a_pc_that_is_too_slow_for_one_is_promised_nobody(tmp_path, monkeypatch):
    async def slow(_crowd: Crowd, n_people: int) -> Level:
        return Level(n_people, 2.5, 2.0, 1.0)

    async with pc(tmp_path, monkeypatch, n_slots=2) as test:
        monkeypatch.setattr(Crowd, "measure", slow)
        test.begin(tune=False)
        await test.wait()
        assert test.verdict is not None
        assert (test.verdict.people, test.verdict.each_per_s, test.verdict.with_waiting) == (0, 2.5, 1)


async def test_it_can_be_stopped_and_then_promises_nothing(tmp_path, monkeypatch):
    async with pc(tmp_path, monkeypatch, n_slots=2, echo_step_s=0.3) as test:
        test.begin(tune=False)
        await asyncio.sleep(0)
        test.begin(tune=False)  # one at a time
        test.stop()
        await test.wait()
        assert (test.state.phase, test.verdict) == ("stopped", None)
        assert not (tmp_path / "self-test.json").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"people": 3}'])
def test_a_verdict_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / "self-test.json").write_bytes(content)
    assert read_verdict(tmp_path / "self-test.json") is None
