"""The web side against real engine processes (echo): readers are told, nothing is lost, no process is left over."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from appliance.base.errors import ModelFileError, NotReady
from appliance.engine import client as client_module
from appliance.engine.client import EngineClient, EngineState
from appliance.engine.config import EngineConfig
from appliance.engine.request import Delta, Finished, FinishReason, Message, Request, Started
from appliance.engine.stream import TokenStream
from tests.unit.engine.waiting import engine_pids, gone, is_alive, run_script, until

LONG = "abcdefghij" * 20
SLOW = {"n_ctx_seq": 4096, "max_input_tokens": 3000, "echo_step_s": 0.15}
"""With a question of VERY_LONG an answer takes several steps before its first word."""
VERY_LONG = "0123456789" * 200


@dataclass
class Reader:
    """Reads one stream to its end and remembers when what came."""

    stream: TokenStream
    text: str = ""
    end: Finished | None = None
    n_starts: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def read(self) -> Finished:
        async for update in self.stream:
            assert self.end is None, "something came after the end"
            match update:
                case Started():
                    self.n_starts += 1
                    self.started.set()
                case Delta():
                    self.text += update.text
                    self.began.set()
                case Finished():
                    self.end = update
        assert self.end is not None
        return self.end


class Asker:
    """Numbers its questions and reads their answers in the background."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.n = 0

    def ask(self, text: str, max_tokens: int = 256) -> Reader:
        self.n += 1
        reader = Reader(self.client.submit(Request(f"q{self.n}", (Message("user", text),), max_tokens)))
        reader.task = asyncio.create_task(self._read(reader))
        return reader

    async def _read(self, reader: Reader) -> None:
        await reader.read()


@asynccontextmanager
async def engine(**config: object) -> AsyncIterator[tuple[EngineClient, Asker]]:
    client = EngineClient(EngineConfig(**({"backend": "echo", "echo_step_s": 0.01} | config)))  # type: ignore[arg-type]
    client.spawn()
    await client.start()
    try:
        yield client, Asker(client)
    finally:
        pids = engine_pids()
        await client.close()
        await gone(pids)


async def ended(*readers: Reader, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        for reader in readers:
            assert reader.task is not None
            await reader.task


def kill(client: EngineClient) -> None:
    assert client.info is not None
    os.kill(client.info.pid, signal.SIGKILL)


async def test_a_question_is_answered_and_the_engine_says_who_it_is():
    async with engine(n_slots=3) as (client, asker):
        info = await client.wait_ready()
        assert client.state is EngineState.READY
        assert (info.model_name, info.n_slots) == ("Echo", 3)
        assert info.pid in engine_pids()
        reader = asker.ask("hello 你好 龘")
        await ended(reader)
        assert reader.text == "hello 你好 龘"
        assert reader.end is not None
        assert reader.end.reason is FinishReason.STOP


async def test_a_question_asked_while_the_engine_loads_waits_for_it():
    async with engine() as (client, asker):
        assert client.state is EngineState.LOADING
        readers = [asker.ask(f"early {i}") for i in range(3)]
        await ended(*readers)
        assert [r.text for r in readers] == ["early 0", "early 1", "early 2"]


async def test_a_question_withdrawn_while_the_engine_loads_ends_at_once():
    async with engine() as (client, asker):
        reader = asker.ask("early")
        reader.stream.abort()
        await ended(reader, within_s=0.5)
        assert client.state is EngineState.LOADING
        assert reader.end is not None
        assert reader.end.reason is FinishReason.ABORT


async def test_what_is_to_be_forgotten_while_no_engine_is_there_the_next_one_forgets(tmp_path):
    async with engine(parked_dir=tmp_path) as (client, _):
        await client.wait_ready()
        for person in ("ann", "bob"):
            request = Request(person, (Message("user", "hello"),), 20, person=person, conversation="tab")
            await Reader(client.submit(request)).read()
    assert n_parked(tmp_path) == 2, "an engine that ends writes down what it has parked"
    async with engine(parked_dir=tmp_path) as (client, _):
        assert client.state is EngineState.LOADING
        client.forget("ann")
        await client.wait_ready()
        await until(lambda: n_parked(tmp_path) == 1)


def n_parked(folder: Path) -> int:
    (path,) = folder.glob("*/cache.db")
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM Cache").fetchone()[0])


async def test_an_abort_ends_one_answer_and_leaves_the_other():
    async with engine(n_slots=2) as (client, asker):
        await client.wait_ready()
        a, b = asker.ask(LONG), asker.ask(LONG)
        await a.began.wait()
        await b.began.wait()
        a.stream.abort()
        a.stream.abort()
        await ended(a, within_s=1.0)
        assert a.end is not None
        assert a.end.reason is FinishReason.ABORT
        assert LONG.startswith(a.text)
        await ended(b)
        assert b.text == LONG


async def test_a_waiting_question_knows_how_many_are_before_it():
    async with engine(n_slots=1) as (client, asker):
        await client.wait_ready()
        readers = [asker.ask(LONG[:60]) for _ in range(4)]
        places: list[list[int | None]] = [[] for _ in readers]

        def note() -> bool:
            for seen, reader in zip(places, readers, strict=True):
                if not seen or seen[-1] != reader.stream.ahead:
                    seen.append(reader.stream.ahead)
            return all(r.end is not None for r in readers)

        await until(note, within_s=30)
        assert places[0][-1] is None
        for i, seen in enumerate(places[1:]):
            assert seen[-1] is None, f"question {i + 1} was answered and still had somebody ahead: {seen}"
            numbers = [n for n in seen if n is not None]
            assert numbers[-(i + 1) :] == list(range(i, -1, -1)), seen
            assert None not in seen[:-1] or seen.index(None) == 0, seen


async def test_what_runs_and_waits_is_counted():
    async with engine(n_slots=2) as (client, asker):
        await client.wait_ready()
        readers = [asker.ask(LONG[:100]) for _ in range(5)]
        assert len(client.running) == 5, "what is on its way to the engine counts"
        await until(lambda: client.n_running == len(client.running) == 2 and client.n_waiting == 3)
        await ended(*readers)
        await until(lambda: client.n_running == client.n_waiting == 0)


async def test_an_engine_killed_in_sixteen_answers_is_followed_by_one_that_goes_on_with_them_all():
    async with engine(n_slots=16, echo_step_s=0.02) as (client, asker):
        first = await client.wait_ready()
        writing = [asker.ask(f"{i:02} " + LONG) for i in range(16)]
        for reader in writing:
            await reader.began.wait()
        waiting = [asker.ask(f"waiting {i}") for i in range(4)]
        await until(lambda: client.n_waiting == 4)
        kill(client)
        killed_s = time.monotonic()
        await until(lambda: client.state is EngineState.RESTARTING)
        fresh = asker.ask("new")
        await ended(fresh, within_s=5.0 - (time.monotonic() - killed_s))
        await ended(*writing, *waiting)
        for i, reader in enumerate(writing):
            assert reader.end is not None
            assert reader.end.reason is FinishReason.STOP
            assert reader.text == f"{i:02} {LONG}", "not a letter is lost or comes twice"
            assert reader.n_starts == 2
        for i, reader in enumerate([*waiting, fresh]):
            assert reader.end is not None
            assert reader.end.reason is FinishReason.STOP
            assert reader.text == ("new" if reader is fresh else f"waiting {i}")
        assert client.info is not None
        assert client.info.pid != first.pid
        assert engine_pids() == [client.info.pid]


async def test_a_question_without_a_word_of_answer_is_asked_again():
    async with engine(**SLOW) as (client, asker):
        await client.wait_ready()
        reader = asker.ask(VERY_LONG, max_tokens=2)
        await reader.started.wait()
        assert not reader.began.is_set()
        kill(client)
        await ended(reader)
        assert reader.text == "01"
        assert reader.n_starts == 2
        assert reader.end is not None
        assert reader.end.reason is FinishReason.LENGTH


async def test_a_question_that_kills_every_engine_is_given_up_and_those_behind_it_are_answered():
    async with engine(n_slots=1, **SLOW) as (client, asker):
        await client.wait_ready()
        killer = asker.ask(VERY_LONG)
        others = [asker.ask(f"{i}", max_tokens=1) for i in range(2)]
        for n in (1, 2):
            await until(lambda n=n: killer.n_starts == n)
            assert not killer.text
            kill(client)
        await ended(killer, *others)
        assert killer.end is not None
        assert (killer.end.reason, killer.end.error) == (FinishReason.ERROR, "engine_failed")
        assert killer.n_starts == 2
        assert [r.text for r in others] == ["0", "1"]


async def test_an_answer_withdrawn_just_before_its_engine_died_is_not_asked_again():
    async with engine(**SLOW) as (client, asker):
        await client.wait_ready()
        reader = asker.ask(VERY_LONG)
        await reader.started.wait()
        reader.stream.abort()
        kill(client)
        await ended(reader)
        assert reader.end is not None
        assert reader.end.reason is FinishReason.ABORT
        assert reader.n_starts == 1


async def test_after_three_deaths_in_a_row_the_engine_rests_refuses_and_then_serves_again(monkeypatch):
    monkeypatch.setattr(client_module, "_MAX_PAUSE_S", 1.0)
    async with engine() as (client, asker):
        for _ in range(3):
            await client.wait_ready()
            kill(client)
            await until(lambda: client.state is EngineState.RESTARTING)
        with pytest.raises(NotReady):
            asker.ask("too soon")
        await asyncio.wait_for(client.wait_ready(), 10)
        reader = asker.ask("at last")
        await ended(reader)
        assert reader.text == "at last"


@pytest.mark.parametrize("n_running", [0, 16])
async def test_closing_ends_every_answer_and_the_process_within_two_seconds(n_running):
    async with engine(n_slots=16, echo_step_s=0.2) as (client, asker):
        info = await client.wait_ready()
        readers = [asker.ask(LONG) for _ in range(n_running)]
        for reader in readers:
            await reader.began.wait()
        started_s = time.monotonic()
        await client.close()
        assert time.monotonic() - started_s < 2.0
        await ended(*readers, within_s=0.5)
        assert all(r.end is not None and r.end.reason is FinishReason.ABORT for r in readers)
        assert not is_alive(info.pid)
        assert client.state is EngineState.CLOSED
        with pytest.raises(NotReady):
            asker.ask("too late")


async def test_closing_while_it_loads_or_restarts_leaves_no_process():
    async with engine() as (client, _asker):
        (pid,) = engine_pids()
        await client.close()
        assert not is_alive(pid)
    async with engine() as (client, _asker):
        await client.wait_ready()
        kill(client)
        await until(lambda: client.state is EngineState.RESTARTING)
        await client.close()
        await gone(engine_pids())


async def test_closing_twice_is_fine():
    async with engine() as (client, _asker):
        await client.close()
        await client.close()


PARENT = """
import asyncio, sys
from appliance.engine.client import EngineClient
from appliance.engine.config import EngineConfig
from appliance.engine.request import Message, Request

async def main():
    client = EngineClient(EngineConfig(backend="echo", echo_step_s=float(sys.argv[2])))
    await client.start()
    info = await client.wait_ready()
    if sys.argv[1] == "answering":
        stream = client.submit(Request("q", (Message("user", "abcdefgh" * 20),), 200))
        async for update in stream:
            break
    print(info.pid, flush=True)
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize(("doing", "step_s"), [("idle", "0.01"), ("answering", "0.01"), ("answering", "3")])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_an_engine_whose_web_process_was_killed_is_gone_within_five_seconds(
    tmp_path, project_root, doing, step_s, how
):
    with run_script(tmp_path / "parent.py", PARENT, [doing, step_s], project_root) as parent:
        try:
            assert parent.stdout is not None
            pid = int(await asyncio.to_thread(parent.stdout.readline))
            assert is_alive(pid)
        finally:
            os.kill(parent.pid, how)
    await gone([pid], within_s=5.0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        (b"<!DOCTYPE html><html><body>Not Found</body></html>", "not a GGUF"),
        (b"\x7fELF something else", "not a GGUF"),
        (b"", "not a GGUF"),
        (b"GGUF", None),
        (b"GGUF\x03\x00\x00\x00" + b"\x00" * 16, None),
    ],
    ids=["missing", "html", "foreign", "empty", "only-the-magic", "nothing-in-it"],
)
async def test_a_model_file_that_cannot_be_used_is_named_with_what_is_wrong_and_the_remedy(
    tmp_path: Path, content: bytes | None, problem: str | None
):
    path = tmp_path / "模型 1.gguf"
    if content is not None:
        path.write_bytes(content)
    async with engine(backend="llama", model_path=path) as (client, asker):
        reader = asker.ask("hello")
        with pytest.raises(ModelFileError) as refusal:
            await asyncio.wait_for(client.wait_ready(), 20)
        assert refusal.value.path == path
        assert str(path) in str(refusal.value)
        assert refusal.value.remedy
        if problem is not None:
            assert problem in refusal.value.problem
        await ended(reader, within_s=1.0)
        assert reader.end is not None
        assert (reader.end.reason, reader.end.error) == (FinishReason.ERROR, "engine_failed")
        assert client.state is EngineState.FAILED
        assert isinstance(client.failure, ModelFileError)
        with pytest.raises(NotReady):
            asker.ask("hello")
