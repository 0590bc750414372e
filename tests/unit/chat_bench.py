"""A chat service whose engine and clock the tests move."""

from __future__ import annotations

from appliance.answers.answer import Answer
from appliance.answers.replies import Known
from appliance.chat.service import ChatService
from appliance.engine.request import Message, SamplingParams
from appliance.settings.schema import Settings
from tests.unit.engine_double import Clock, ScriptedEngine, settle

ANN = ("ann", "tab-1")
BOB = ("bob", "tab-1")


class Bench:
    """A chat service on a scripted engine, and a clock that stands still."""

    def __init__(self, known: Known | None = None, **changes: object) -> None:
        self.engine, self.clock = ScriptedEngine(), Clock()
        self.settings = Settings(**{"max_batch_size": 2, "look_ahead": 1, "queue_size": 1, **changes})
        self.chat = ChatService(self.engine, self.settings, self.clock, known)
        self.waiting: list[tuple[str, str]] = []
        self.chat.attach_page_queue(lambda: self.waiting)

    async def answered(self, key: tuple[str, str], question: str, text: str) -> Answer:
        await self.chat.admit(*key, question)
        answer = await self.chat.ask(*key, question)
        await settle()
        self.engine.last.say(text)
        self.engine.last.finish()
        await answer.wait_done()
        return answer

    def housekeep(self) -> None:
        self.chat._end_unread()


async def ask_as_program(bench: Bench, *messages: Message) -> Answer:
    return await bench.chat.complete(
        messages or [Message("user", "x")], person="program", max_tokens=None, sampling=SamplingParams(), stop=()
    )
