"""How many people a PC serves comfortably: found by halving, measured on an engine, promised in people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.base.paths import Paths
from appliance.engine.client import EngineClient
from appliance.engine.request import EngineInfo
from appliance.operate.load_test import Level, LoadTest
from appliance.operate.self_test import SelfTest, SelfTestState, find_limit, read_verdict, with_waiting
from appliance.settings.schema import Settings
from tests.unit.engine.test_client import engine


def level(n_people: int, *, limit: int) -> Level:
    """A PC on which `limit` people read comfortably."""
    is_fine = n_people <= limit
    return Level(n_people, 8.0, 6.0 if is_fine else 3.0, 1.0, 8.0 * n_people)


@pytest.mark.parametrize(("n_slots", "n_most"), [(1, 3), (4, 28), (16, 52), (64, 148)])
async def test_the_limit_is_found_wherever_it_is(n_slots, n_most):
    for limit in range(n_most + 5):
        asked: list[int] = []

        async def measure(n_people: int, limit: int = limit, asked: list[int] = asked) -> Level:
            asked.append(n_people)
            return level(n_people, limit=limit)

        found = await find_limit(measure, n_slots, n_most)
        right = min(max(1, limit), n_most)
        assert found.is_comfortable is (limit > 0)
        assert right * 0.85 - 1 <= found.n_people <= right
        assert max(asked) <= n_most
        assert len(asked) == len(set(asked)) <= 7


def test_with_waiting_come_those_whom_a_place_comes_free_for_within_fifteen_seconds():
    assert with_waiting(Level(12, 6.0, 5.0, 1.0, all_per_s=70.0), n_slots=16, n_most=52) == 12 + 10
    assert with_waiting(Level(18, 6.0, 5.0, 2.0, all_per_s=90.0), n_slots=16, n_most=52) == 16 + 13
    assert with_waiting(Level(24, 20.0, 15.0, 2.0, all_per_s=400.0), n_slots=16, n_most=52) == 52
    assert with_waiting(Level(1, 2.0, 1.0, 1.0, all_per_s=2.0), n_slots=16, n_most=52) == 1


class Pc:
    """A program with the echo engine."""

    def __init__(self, client: EngineClient) -> None:
        self.engine = client
        self.settings = Settings(backend="echo", max_batch_size=2, look_ahead=0, queue_size=2)
        self.model_source: Path | None = None

    async def use_model(self, _source: Path) -> EngineInfo:
        raise AssertionError("there is no model to load")


@asynccontextmanager
async def pc(tmp_path, monkeypatch, **config: object) -> AsyncIterator[SelfTest]:
    monkeypatch.setattr(LoadTest.measure, "__defaults__", (0.1, 0.8))
    paths = Paths(tmp_path)
    async with engine(**config) as (client, _asker):
        await client.wait_ready()
        yield SelfTest(Pc(client), paths)


async def test_a_quick_pc_is_promised_every_place_and_the_promise_is_remembered(tmp_path, monkeypatch):
    async with pc(tmp_path, monkeypatch, n_slots=2, echo_step_s=0.01) as test:
        assert test.verdict is None
        test.begin(tune=True)
        await test.wait()
        assert test.state == SelfTestState("done", 1.0)
        assert test.verdict is not None
        assert (test.verdict.people, test.verdict.with_waiting, test.verdict.model_name) == (4, 4, "Echo")
        assert test.verdict.free_memory_bytes > 0
        assert test.verdict.free_disk_bytes > 0
        assert test.is_of_this_model
        assert read_verdict(tmp_path / "self-test.json") == test.verdict


async def test_a_pc_that_is_too_slow_for_one_is_promised_nobody(tmp_path, monkeypatch):
    async def slow(_load_test: LoadTest, n_people: int) -> Level:
        return Level(n_people, 2.5, 2.0, 1.0, 2.5)

    async with pc(tmp_path, monkeypatch, n_slots=2) as test:
        monkeypatch.setattr(LoadTest, "measure", slow)
        test.begin(tune=False)
        await test.wait()
        assert test.verdict is not None
        assert (test.verdict.people, test.verdict.each_per_s, test.verdict.with_waiting) == (0, 2.5, 1)
        assert test.verdict.n_threads >= 1


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
