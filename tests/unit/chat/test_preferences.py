"""What people may want of their answers: bounded, told to the engine, and never in somebody else's answer."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from appliance.answers.block_list import BlockList
from appliance.answers.cache_key import CacheKeys
from appliance.answers.replies import Known
from appliance.chat.preferences import MAX_INSTRUCTION_CHARS, NO_WISHES, BadWishes, Wishes, take
from appliance.engine.request import Message
from tests.unit.chat_bench import ANN, BOB, Bench
from tests.unit.engine_double import settle


def header(**wishes: object) -> str:
    return quote(json.dumps(wishes))


def test_what_the_browser_sends_is_read_and_cleaned():
    assert take("") == NO_WISHES
    assert take(header(instructions="  说中文\x00 ", creativity="exact", length="short")) == Wishes(
        instructions="说中文", creativity="exact", length="short"
    )
    assert take(header(instructions="字" * MAX_INSTRUCTION_CHARS)).instructions == "字" * MAX_INSTRUCTION_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "%ff",
        "[]",
        header(length="endless"),
        header(creativity=2),
        header(instructions=None),
        header(max_tokens=9999),
        header(instructions="字" * (MAX_INSTRUCTION_CHARS + 1)),
        "%22" * 10_000,
    ],
)
def test_whatever_else_comes_is_refused(text):
    with pytest.raises(BadWishes):
        take(text)


def test_an_answer_gets_shorter_never_longer():
    assert Wishes(length="short").max_tokens(256) < Wishes(length="medium").max_tokens(256) < 256
    assert NO_WISHES.max_tokens(256) == 256
    assert Wishes(length="short").max_tokens(1) == 1


async def test_the_engine_is_told_and_the_owners_words_come_first():
    bench = Bench(answer_cache_scope="all", system_prompt="Be kind.", temperature=0.7)
    await bench.chat.ask(*ANN, "Hi?", None, Wishes(instructions="Rhyme.", creativity="exact", length="short"))
    await settle()
    request = bench.engine.last.request
    assert request.messages[0] == Message("system", "Be kind.\n\nRhyme.\n\nAnswer in at most three sentences.")
    assert request.own_words == "Rhyme."
    assert request.sampling.temperature == 0.0
    assert request.max_tokens == int(bench.settings.max_answer_tokens * 0.35)


async def test_again_and_continue_follow_them_too():
    bench = Bench()
    await bench.answered(ANN, "Hi?", "Hello")
    answer = await bench.chat.again(*ANN, Wishes(creativity="lively"))
    await settle()
    assert bench.engine.last.request.sampling.temperature == 1.0
    bench.engine.last.say("He")
    answer.end("stopped")
    await answer.wait_done()
    await bench.chat.go_on(*ANN, Wishes(instructions="Rhyme."))
    await settle()
    assert bench.engine.last.request.messages[0].text.endswith("\n\nRhyme.")


@pytest.mark.parametrize("scope", ["first", "all"])
async def test_only_who_wants_the_same_shares_an_answer(scope):
    bench = Bench(answer_cache_scope=scope, max_batch_size=4)
    digests = set()
    cache_keys = CacheKeys(scope, bench.settings.system_prompt, "")
    wanted = [NO_WISHES, Wishes(creativity="calm"), Wishes(length="short"), Wishes(instructions="Rhyme.")]
    for number, wishes in enumerate(wanted):
        await bench.chat.ask(f"person {number}", "tab", "What is a mean?", None, wishes)
        await settle()
        assert len(bench.engine.streams) == number + 1, "asked anew, not read along"
        digests.add(cache_keys.digest(bench.engine.last.request, "model"))
    # Under "first" an answer to instructions of one's own is its person's alone.
    assert len(digests) == (4 if scope == "all" else 3)
    assert ("" in digests) == (scope == "first")


async def test_blocked_words_in_instructions_are_not_asked_either(tmp_path: Path):
    rules = tmp_path / "block_list.toml"
    rules.write_text('[[rule]]\nwords = ["salary"]\n', encoding="utf-8")
    bench = Bench(known=Known(block_list=BlockList(rules)))
    answer = await bench.chat.ask(*BOB, "Hi?", None, Wishes(instructions="Always name my salary."))
    await answer.wait_done()
    assert bench.engine.streams == []
