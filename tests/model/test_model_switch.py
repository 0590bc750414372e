"""Another model takes over while ten people talk: nothing is lost, conversations go on, a failure goes back."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.answers.answer import Answer
from appliance.base.errors import ModelFileError
from appliance.base.paths import Paths
from appliance.engine.client import EngineState
from appliance.engine.request import FinishReason
from appliance.lifecycle import Appliance
from appliance.models.catalogue import read_choice
from appliance.settings.schema import Settings
from tests.unit.engine.waiting import until

N_PEOPLE = 10
ENDS = (FinishReason.STOP, FinishReason.LENGTH)


@asynccontextmanager
async def running(data_dir: Path, **changes: object) -> AsyncIterator[Appliance]:
    paths = Paths(data_dir)
    paths.prepare()
    settings = Settings.model_validate(
        {"data_dir": str(data_dir), "lan_name": "", "host": "127.0.0.1", "quick_answers": False}
        | {"max_answer_tokens": 24, "max_context_tokens": 512, "max_batch_size": 4, "yield_to_others": False}
        | {"disconnect_grace_s": 600, "disconnect_grace_busy_s": 600}  # nobody reads along here
        | changes
    )
    appliance = Appliance(settings, paths)
    appliance.spawn()
    await appliance.start()
    try:
        await appliance.wait_ready()
        yield appliance
    finally:
        await appliance.close()


async def ask(appliance: Appliance, number: int, text: str) -> Answer:
    return await appliance.chat.ask(f"person {number}", "tab", text)


async def all_ended(answers: list[Answer]) -> None:
    async with asyncio.timeout(90):
        await asyncio.gather(*(answer.wait_done() for answer in answers))


@pytest.fixture
def other(tmp_path, starter_model) -> Path:
    """A second model, the same weights under another licence: another fingerprint."""
    target = tmp_path / "data" / "models" / "Other-Instruct.gguf"
    target.parent.mkdir(parents=True)
    shutil.copyfile(starter_model, target)
    with target.open("r+b") as file:
        content = file.read(2**20)
        at = content.index(b"apache-2.0")
        file.seek(at)
        file.write(b"apache-2,0")
    return target


async def test_ten_people_lose_nothing_while_the_model_changes(tmp_path, other, starter_model):
    async with running(tmp_path / "data", model=str(starter_model)) as appliance:
        before = appliance.engine.info
        told: list[bool] = []

        def note() -> None:
            """Nobody has asked the new model anything when the conversations hear of it."""
            told.append(all(stream.n_sends == 0 for stream in appliance.engine._streams.values()))
            appliance.chat.model_changed()

        appliance.engine.on_new_model = note
        asked = [await ask(appliance, n, f"My number is {n}. What is a cat?") for n in range(N_PEOPLE)]
        changing = asyncio.create_task(appliance.models.choose(other))
        await until(lambda: appliance.engine.state is EngineState.SWITCHING)
        late = [await appliance.chat.ask(f"late {n}", "tab", f"Late {n}. What is a dog?") for n in range(N_PEOPLE)]
        await all_ended([*asked, *late])
        info = await asyncio.wait_for(changing, 30)
        assert before is not None
        assert info.fingerprint != before.fingerprint
        assert info.model_name == "Other-Instruct"
        assert told == [True]
        assert [answer.finish in ENDS and bool(answer.text) for answer in [*asked, *late]] == [True] * 2 * N_PEOPLE
        again = [await ask(appliance, n, "And in one word?") for n in range(N_PEOPLE)]
        await all_ended(again)
        for n in range(N_PEOPLE):
            turns = appliance.chat.conversation(f"person {n}", "tab").turns
            assert [turn.question for turn in turns] == [f"My number is {n}. What is a cat?", "And in one word?"]
            assert turns[0].text == asked[n].text
            assert turns[1].text == again[n].text != ""
        assert [entry.answers for entry in appliance.models.entries()] == [True, False]


@pytest.mark.parametrize("has_memory", [True, False])
async def test_a_model_without_one_of_its_layers_goes_back_and_is_not_remembered(tmp_path, monkeypatch, has_memory):
    """Where memory allows two models it is tried beside the one that answers, which does not even pause."""
    monkeypatch.setattr("appliance.engine.try_out.available_ram_bytes", lambda: 10**12 if has_memory else 0)
    async with running(tmp_path / "data") as appliance:
        source, before = appliance.model_source, appliance.engine.info
        strange = Path(appliance.settings.data_dir) / "models" / "strange.gguf"
        strange.write_bytes(source.read_bytes().replace(b"blk.5.ffn_down.weight", b"blk.5.ffn_none.weight", 1))
        asked = [await ask(appliance, n, f"What is {n}?") for n in range(N_PEOPLE)]
        changing = asyncio.create_task(appliance.models.choose(strange))
        await all_ended(asked)
        with pytest.raises(ModelFileError, match="strange"):
            await asyncio.wait_for(changing, 10)  # from the end of what was in hand to the old model's being back
        assert all(answer.finish in ENDS for answer in asked)
        after = appliance.engine.info
        assert before is not None
        assert after is not None
        assert (after.model_name, after.fingerprint) == (before.model_name, before.fingerprint)
        assert read_choice(Paths(tmp_path / "data").model_choice, tmp_path / "data" / "models") is None
        fresh = await ask(appliance, 99, "What is a bird?")
        await all_ended([fresh])
        assert fresh.finish in ENDS
        assert appliance.model_source == source
        assert (after.pid == before.pid) is has_memory
