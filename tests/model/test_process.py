"""The real engine process: killed, orphaned, closed, and given files it cannot use (cases 6, 26, 59)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from appliance.base.errors import ModelFileError
from appliance.engine.client import EngineClient, EngineState
from appliance.engine.config import EngineConfig
from appliance.engine.request import Delta, Finished, FinishReason, Message, Request, SamplingParams
from tests.unit.engine.waiting import gone, is_alive, run_script, until


def config_of(model: Path) -> EngineConfig:
    return EngineConfig(
        model_path=model, n_slots=16, n_ctx_seq=256, max_answer_tokens=128, max_input_tokens=100, n_threads=1
    )


def question(request_id: str, text: str, max_tokens: int) -> Request:
    return Request(request_id, (Message("user", text),), max_tokens, SamplingParams(temperature=0.0))


async def started(model: Path) -> EngineClient:
    client = EngineClient(config_of(model))
    client.spawn()
    await client.start()
    await asyncio.wait_for(client.wait_ready(), 60)
    return client


async def test_an_engine_killed_in_sixteen_answers_is_followed_by_one_that_goes_on_with_them(starter_model):
    before_s = time.monotonic()
    client = await started(starter_model)
    # Five seconds where nothing else keeps the computer busy; the first start says how busy it is.
    limit_s = max(5.0, 4 * (time.monotonic() - before_s))
    try:
        texts: dict[str, str] = {}
        n_tokens: dict[str, int] = {}
        ends: dict[str, Finished] = {}

        async def read(request: Request) -> None:
            async for update in client.submit(request):
                if isinstance(update, Delta):
                    texts[request.request_id] = texts.get(request.request_id, "") + update.text
                    n_tokens[request.request_id] = n_tokens.get(request.request_id, 0) + len(update.token_ids)
                elif isinstance(update, Finished):
                    ends[request.request_id] = update

        # as long as each other: sixteen that are still being written when the last one has begun
        questions = [question(f"w{i}", f"Count from {i + 10} to 1000.", 128) for i in range(16)]
        reading = [asyncio.create_task(read(request)) for request in questions]
        await until(lambda: len(texts) == 16, within_s=60)
        assert not ends
        waiting = [asyncio.create_task(read(question(f"v{i}", f"Say {i}.", 4))) for i in range(2)]
        await asyncio.sleep(0)
        assert client.info is not None
        first_pid = client.info.pid
        os.kill(first_pid, signal.SIGKILL)
        killed_s = time.monotonic()
        await until(lambda: client.state is not EngineState.READY)
        await asyncio.wait_for(read(question("new", "1+1=?", 4)), limit_s)
        assert time.monotonic() - killed_s < limit_s
        await asyncio.wait_for(asyncio.gather(*reading, *waiting), 30)
        for i in range(16):
            reason = ends[f"w{i}"].reason
            assert reason is FinishReason.STOP or (reason is FinishReason.LENGTH and n_tokens[f"w{i}"] == 128)
            assert texts[f"w{i}"]
        for request_id in ("v0", "v1", "new"):
            assert ends[request_id].reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert client.info.pid != first_pid
        assert not is_alive(first_pid)
    finally:
        await client.close()


async def test_closing_in_the_middle_of_sixteen_answers_takes_less_than_two_seconds(starter_model):
    client = await started(starter_model)
    assert client.info is not None
    pid = client.info.pid
    streams = [client.submit(question(f"q{i}", f"Count from {i} to 1000.", 128)) for i in range(16)]
    await asyncio.sleep(0.5)
    started_s = time.monotonic()
    await client.close()
    assert time.monotonic() - started_s < 2.0
    assert not is_alive(pid)
    for stream in streams:
        last = [update async for update in stream][-1]
        assert isinstance(last, Finished)
        assert last.reason is FinishReason.ABORT


PARENT = """
import asyncio, sys
from pathlib import Path
from appliance.engine.client import EngineClient
from appliance.engine.request import Delta
from tests.model.test_process import config_of, question

async def main():
    client = EngineClient(config_of(Path(sys.argv[1])))
    await client.start()
    info = await client.wait_ready()
    async for update in client.submit(question("q", "Count from 1 to 1000.", 128)):
        if isinstance(update, Delta):
            break
    print(info.pid, flush=True)
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_the_engine_is_gone_within_five_seconds_of_its_web_process(starter_model, tmp_path, project_root):
    with run_script(tmp_path / "parent.py", PARENT, [str(starter_model)], project_root) as parent:
        try:
            assert parent.stdout is not None
            pid = int(await asyncio.to_thread(parent.stdout.readline))
        finally:
            parent.kill()
    await gone([pid], within_s=5.0)


async def refusal_of(path: Path) -> ModelFileError:
    client = EngineClient(config_of(path))
    await client.start()
    try:
        with pytest.raises(ModelFileError) as refusal:
            await asyncio.wait_for(client.wait_ready(), 60)
        assert client.state is EngineState.FAILED
        return refusal.value
    finally:
        await client.close()


@pytest.mark.parametrize("share", [0.5, 0.999, 0.001])
async def test_a_cut_off_model_file_is_named_with_the_remedy(starter_model, tmp_path, share):
    path = tmp_path / "half.gguf"
    size_bytes = starter_model.stat().st_size
    with starter_model.open("rb") as whole, path.open("wb") as cut:
        cut.write(whole.read(int(size_bytes * share)))
    refusal = await refusal_of(path)
    assert refusal.path == path
    assert str(path) in str(refusal)
    assert "cut off" in refusal.problem
    assert "again" in refusal.remedy


async def test_a_gguf_without_a_model_in_it_is_named(qwen_file):
    refusal = await refusal_of(qwen_file)
    assert refusal.path == qwen_file
    assert "cannot load" in refusal.problem
