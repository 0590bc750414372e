"""Another model takes over: what is in hand ends, what is asked meanwhile waits, a failure goes back to the old one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from appliance.base.errors import EngineFailed, ModelFileError, NotReady
from appliance.engine.client import EngineClient, EngineState
from appliance.engine.config import EngineConfig
from appliance.engine.request import EngineInfo, FinishReason, Message, Request
from tests.unit.engine.test_client import LONG, SLOW, VERY_LONG, Asker, Reader, ended, engine, kill
from tests.unit.engine.waiting import engine_pids, until


def other(**changes: object) -> EngineConfig:
    """An engine that can be told from the first one by its number of slots."""
    return EngineConfig(**({"backend": "echo", "echo_step_s": 0.01, "n_slots": 5} | changes))  # type: ignore[arg-type]


async def switching_behind_an_answer(client: EngineClient, asker: Asker) -> tuple[Reader, asyncio.Task[EngineInfo]]:
    """A long answer that is being written, and the change that waits for its end."""
    running = asker.ask(VERY_LONG)
    await running.started.wait()
    switching = asyncio.create_task(client.switch(other()))
    await until(lambda: client.state is EngineState.SWITCHING)
    return running, switching


async def test_running_answers_end_and_new_ones_are_the_new_engines():
    async with engine(n_slots=2) as (client, asker):
        first = await client.wait_ready()
        texts = [f"{number} {LONG}" for number in range(10)]
        running = [asker.ask(text) for text in texts]  # eight of them wait in the engine
        await running[0].began.wait()
        switching = asyncio.create_task(client.switch(other()))
        await until(lambda: client.state is EngineState.SWITCHING)
        late = [asker.ask(f"late {number}") for number in range(10)]
        second = await asyncio.wait_for(switching, 20)
        await ended(*running, *late)
        assert [reader.text for reader in running] == texts
        assert [reader.text for reader in late] == [f"late {number}" for number in range(10)]
        assert all(reader.end.reason is FinishReason.STOP for reader in [*running, *late] if reader.end)
        assert [reader.n_starts for reader in late] == [1] * 10
        assert (second.n_slots, client.info, client.state) == (5, second, EngineState.READY)
        assert second.pid != first.pid
        assert engine_pids() == [second.pid]
        assert client.n_restarts == 0


async def test_tokens_are_counted_on_across_the_change():
    async with engine() as (client, asker):
        await client.wait_ready()
        await ended(asker.ask("abc"))
        before = client.n_decoded_total
        await client.switch(other())
        await ended(asker.ask("abc"))
        assert client.n_decoded_total == 2 * before


async def test_a_broken_file_goes_back_to_the_model_before(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\0\0\0" + b"\0" * 64)
    async with engine() as (client, asker):
        first = await client.wait_ready()
        running = asker.ask(LONG)
        await running.began.wait()
        switching = asyncio.create_task(client.switch(other(backend="llama", model_path=broken)))
        await until(lambda: client.state is EngineState.SWITCHING)
        late = asker.ask("late")
        with pytest.raises(ModelFileError, match="broken"):
            await asyncio.wait_for(switching, 30)
        await ended(running, late)
        assert (running.text, late.text) == (LONG, "late")
        assert client.state is EngineState.READY
        assert client.info is not None
        assert (client.info.n_slots, client.info.fingerprint) == (first.n_slots, first.fingerprint)


async def test_an_engine_that_ends_while_it_loads_goes_back_too(starter_model):
    async with engine() as (client, asker):
        await client.wait_ready()
        switching = asyncio.create_task(client.switch(other(backend="llama", model_path=starter_model)))
        await until(lambda: client._switched is not None)
        late = asker.ask("late")
        assert client._child is not None
        client._child.process.kill()
        with pytest.raises(EngineFailed, match="while it was loading"):
            await asyncio.wait_for(switching, 30)
        await ended(late)
        assert late.text == "late"


async def test_what_waits_can_be_stopped_and_so_can_what_runs():
    async with engine(**SLOW) as (client, asker):
        await client.wait_ready()
        running, switching = await switching_behind_an_answer(client, asker)
        late = asker.ask("late")
        late.stream.abort()
        await ended(late)
        assert not switching.done()
        running.stream.abort()
        await ended(running)
        assert all(reader.end.reason is FinishReason.ABORT for reader in (running, late) if reader.end)
        await asyncio.wait_for(switching, 20)


async def test_one_change_at_a_time():
    async with engine(**SLOW) as (client, asker):
        await client.wait_ready()
        running, switching = await switching_behind_an_answer(client, asker)
        with pytest.raises(NotReady):
            await client.switch(other())
        running.stream.abort()
        await asyncio.wait_for(switching, 20)


async def test_an_engine_that_dies_before_the_change_stays_the_engine():
    async with engine(**SLOW) as (client, asker):
        first = await client.wait_ready()
        running, switching = await switching_behind_an_answer(client, asker)
        kill(client)
        with pytest.raises(NotReady):
            await asyncio.wait_for(switching, 20)
        info = await client.wait_ready()
        assert info.n_slots == first.n_slots
        running.stream.abort()
        await ended(running)


async def test_closing_ends_a_change_that_is_on_its_way():
    async with engine(**SLOW) as (client, asker):
        await client.wait_ready()
        running, switching = await switching_behind_an_answer(client, asker)
        await client.close()
        with pytest.raises(NotReady):
            await asyncio.wait_for(switching, 5)
        await ended(running)


async def test_closing_while_the_new_engine_loads_leaves_no_process():
    async with engine() as (client, _asker):
        await client.wait_ready()
        switching = asyncio.create_task(client.switch(other()))
        await until(lambda: client._switched is not None)
        await client.close()
        with pytest.raises(EngineFailed):
            await asyncio.wait_for(switching, 5)


def test_token_ids_are_for_the_model_they_came_from():
    ours = Message("assistant", "hello", (1, 2))
    request = Request("r", (Message("user", "x"), ours, Message("user", "y")), 10, model="a")
    assert request.for_model("a") is request
    changed = request.for_model("b")
    assert [message.token_ids for message in changed.messages] == [None, None, None]
    assert [message.text for message in changed.messages] == ["x", "hello", "y"]
    assert changed.for_model("b") is changed
    assert replace(request, messages=(Message("user", "x"),)).for_model("b").model == "a"
