"""How a reader follows an answer."""

from __future__ import annotations

import asyncio
import contextlib
import time

from appliance.answers.answer import Answer, AnswerState
from appliance.answers.pace import LATEST_S
from appliance.engine.request import Delta, Finished, FinishReason, Started


class Line:
    """A source that tells a place and forgets the rest."""

    ahead: int | None = 3

    def abort(self) -> None:
        return None


def make() -> Answer:
    return Answer("id", "q", time.monotonic, lambda: 1)


def say(answer: Answer, text: str, n_tokens: int = 1) -> None:
    answer.take(Delta(text, tuple(range(n_tokens))))


def finish(answer: Answer) -> None:
    answer.take(Finished(FinishReason.STOP, 1, 0, 1))
    answer.settle()


async def follow(
    answer: Answer, seen: list[tuple[str, AnswerState, int | None]], heartbeat_s: float | None = None
) -> None:
    async with contextlib.aclosing(answer.follow(heartbeat_s)) as updates:
        async for now in updates:
            seen.append((now.text, now.state, now.ahead))  # noqa: PERF401 -- each as soon as it comes


async def test_a_reader_sees_the_line_the_first_word_and_the_end():
    answer, line, seen = make(), Line(), []
    answer.wait_for(line)
    reader = asyncio.create_task(follow(answer, seen))
    await asyncio.sleep(0.01)
    line.ahead = None
    answer.take(Started(5, 0, False))
    await asyncio.sleep(0.01)
    say(answer, "Hello")
    await asyncio.sleep(0.01)
    say(answer, " w")
    say(answer, "orld")
    await asyncio.sleep(0.01)
    finish(answer)
    await reader
    assert [text for text, _, _ in seen] == ["", "", "Hello", "Hello world"]
    assert seen[0] == ("", AnswerState.WAITING, 3)
    assert seen[-1][1] is AnswerState.DONE


async def test_a_change_of_place_is_shown():
    answer, line, seen = make(), Line(), []
    answer.wait_for(line)
    reader = asyncio.create_task(follow(answer, seen))
    await asyncio.sleep(0.01)
    line.ahead = 2
    await asyncio.sleep(0.6)
    reader.cancel()
    assert [ahead for _, _, ahead in seen] == [3, 2]


async def test_fast_tokens_are_gathered():
    answer, seen = make(), []
    reader = asyncio.create_task(follow(answer, seen))
    began = time.monotonic()
    for _ in range(100):
        say(answer, "word, ")
        await asyncio.sleep(0.005)
    finish(answer)
    await reader
    assert 4 <= len(seen) <= (time.monotonic() - began) / 0.1 + 3
    assert len(seen[-1][0]) == 600


async def test_a_heartbeat_comes_without_news():
    answer, seen = make(), []
    reader = asyncio.create_task(follow(answer, seen, heartbeat_s=0.02))
    await asyncio.sleep(0.2)
    reader.cancel()
    assert 3 <= len(seen) <= 12


async def test_two_readers_read_the_same_answer_and_one_may_leave():
    answer, stays, leaves = make(), [], []
    first = asyncio.create_task(follow(answer, stays))
    second = asyncio.create_task(follow(answer, leaves))
    await asyncio.sleep(0)
    say(answer, "a")
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.sleep(0.01)
    assert answer.alone_since is None
    finish(answer)
    await first
    assert answer.alone_since is not None
    assert stays[-1][0] == "a"


async def test_a_finished_answer_is_shown_once():
    answer, seen = make(), []
    say(answer, "a")
    finish(answer)
    await follow(answer, seen)
    assert seen == [("a", AnswerState.DONE, None)]


async def test_a_word_that_comes_alone_is_shown_in_time_however_rare_the_heartbeat():
    answer, seen = make(), []
    reader = asyncio.create_task(follow(answer, seen, heartbeat_s=60))
    say(answer, "one")
    await asyncio.sleep(0.05)
    say(answer, " two")
    await asyncio.sleep(LATEST_S + 0.1)
    say(answer, " three")
    await asyncio.sleep(LATEST_S + 0.1)
    assert [text for text, _, _ in seen][-2:] == ["one two", "one two three"]
    finish(answer)
    await reader
