"""A setting that says that it acts at once does, in every part that goes by it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.access.person import Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.answers.answer_cache import AnswerCache
from appliance.answers.quick_answers import QuickAnswers
from appliance.answers.replies import Known
from appliance.base.errors import AlreadyAnswering, Busy, TooFast
from appliance.base.paths import Paths
from appliance.chat.preferences import Wishes
from appliance.engine.request import Running, SamplingParams
from appliance.lifecycle import Appliance
from appliance.line.load_shedding import LoadLevel
from appliance.network.hosts import Authority
from appliance.settings.schema import Settings
from tests.unit.access.test_rate_limits import caller
from tests.unit.chat_bench import ANN, BOB, Bench
from tests.unit.engine_double import settle

WAITS = ("shorter_answers_wait_s", "shorter_history_wait_s", "saved_only_wait_s", "busy_wait_s")


def change(bench: Bench, **changes: Any) -> None:
    bench.chat.use(bench.settings.model_copy(update=changes))


def test_the_share_of_an_address(tmp_path):
    settings = Settings(backend="echo", address_share=20, data_dir=str(tmp_path))
    appliance = Appliance(settings, Paths(tmp_path))
    assert appliance.limits.address_share == 0.2
    for use in appliance.store.users:
        use(settings.model_copy(update={"address_share": 0}))
    assert appliance.limits.address_share == 0


async def test_the_system_prompt():
    bench = Bench()
    change(bench, system_prompt="Only in rhymes.")
    await bench.answered(ANN, "hello", "Good day.")
    assert bench.engine.last.request.messages[0].text == "Only in rhymes."


async def test_the_number_that_may_wait():
    bench = Bench(max_batch_size=1, look_ahead=0, queue_size=0)
    await bench.chat.admit(*ANN, "one")
    with pytest.raises(Busy):
        await bench.chat.admit(*BOB, "two")
    change(bench, queue_size=1)
    await bench.chat.admit(*BOB, "two")


async def test_the_answers_of_one_person():
    bench = Bench(max_batch_size=8, max_answers_per_person=1)
    await bench.chat.admit("ann", "tab-1", "one")
    with pytest.raises(AlreadyAnswering):
        await bench.chat.admit("ann", "tab-2", "two")
    change(bench, max_answers_per_person=2)
    await bench.chat.admit("ann", "tab-2", "two")


async def test_how_long_a_conversation_is_kept():
    bench = Bench()
    await bench.answered(ANN, "hello", "Good day.")
    change(bench, session_ttl_s=10)
    bench.clock.now += 11
    bench.chat.sessions.sweep()
    assert len(bench.chat.sessions) == 0


async def test_how_long_an_answer_without_a_reader_goes_on():
    bench = Bench(disconnect_grace_s=100, disconnect_grace_busy_s=100)
    answer = await bench.chat.ask(*ANN, "hello")
    await settle()
    bench.clock.now += 20
    bench.housekeep()
    assert not answer.is_stopped
    change(bench, disconnect_grace_s=10, disconnect_grace_busy_s=10)
    bench.housekeep()
    await answer.wait_done()


async def test_quick_answers_and_the_name_of_the_office(tmp_path):
    shipped = Path(__file__).parents[3] / "appliance" / "answers" / "quick_answers.toml"
    own = tmp_path / "quick_answers.toml"
    own.write_text('[[rule]]\nquestions = ["where am I"]\nanswer = "In {office_name}."\n')
    quick = QuickAnswers(own, shipped, "", lambda: datetime(2026, 3, 1, tzinfo=UTC))
    bench = Bench(Known(quick_answers=quick))
    change(bench, office_name="Haus 3")
    assert await bench.chat.admit(*ANN, "Where am I?") is False
    assert quick.find("Where am I?") == "In Haus 3."
    change(bench, quick_answers=False)
    assert await bench.chat.admit(*ANN, "Where am I?") is True


async def test_which_answers_are_kept_and_for_how_long(tmp_path):
    now = [1_000_000.0]
    saved = AnswerCache(tmp_path, limit_bytes=2**20, ttl_s=1000, wall_clock=lambda: now[0])
    try:
        bench = Bench(Known(saved=saved))
        await bench.answered(ANN, "hello", "Good day.")
        assert await bench.chat.admit(*BOB, "hello") is False
        change(bench, answer_cache_scope="off")
        assert await bench.chat.admit(*BOB, "hello") is True
        change(bench, answer_cache_ttl_s=1e12)
        assert await bench.chat.admit("eve", "tab-1", "hello") is False
        change(bench, answer_cache_ttl_s=20)
        now[0] = time.time() + 21
        assert await bench.chat.admit("joe", "tab-1", "hello") is True
    finally:
        await saved.close()


@pytest.mark.parametrize(
    ("key", "level"),
    [
        ("shorter_answers_wait_s", LoadLevel.SHORT_ANSWERS),
        ("shorter_history_wait_s", LoadLevel.SHORT_HISTORY),
        ("saved_only_wait_s", LoadLevel.SAVED_ONLY),
        ("busy_wait_s", LoadLevel.BUSY),
    ],
)
async def test_the_waits_from_which_things_give_way(key, level):
    bench = Bench(**dict.fromkeys(WAITS, 0))
    bench.engine.running, bench.engine.n_running, bench.engine.n_waiting = [Running(1, 0), Running(2, 0)], 2, 50
    pass_time(bench)
    assert bench.chat.watch.load_shedding.level is LoadLevel.NORMAL
    change(bench, **{key: 5})
    pass_time(bench)
    assert bench.chat.watch.load_shedding.level is level


async def test_the_longest_answer_while_answers_are_shorter():
    bench = Bench(**dict.fromkeys(WAITS, 0), queue_size=100)
    bench.engine.running, bench.engine.n_running, bench.engine.n_waiting = [Running(1, 0), Running(2, 0)], 2, 50
    change(bench, shorter_answers_wait_s=5, short_answer_tokens=30)
    pass_time(bench)
    await bench.chat.ask(*ANN, "hello")
    await settle()
    assert bench.engine.last.request.max_tokens == 30


def pass_time(bench: Bench) -> None:
    for _ in range(10):
        bench.clock.now += 0.5
        bench.chat.watch.tick()


async def test_how_words_are_drawn_where_the_question_does_not_say():
    bench = Bench()
    change(bench, temperature=0.5, top_p=0.8, top_k=7, repetition_penalty=1.1)
    await bench.answered(ANN, "hello", "Good day.")
    assert bench.engine.last.request.sampling == SamplingParams(0.5, 7, 0.8, None, 1.1)
    change(bench, temperature=0.5, top_k=7)
    exact = Wishes(creativity="exact")
    await bench.chat.admit(*BOB, "hello", wishes=exact)
    await bench.chat.ask(*BOB, "hello", wishes=exact)
    await settle()
    assert bench.engine.last.request.sampling == SamplingParams(temperature=0.0, top_k=7)


async def test_how_many_the_engine_is_handed_beyond_its_slots():
    bench = Bench(max_batch_size=1, look_ahead=0, queue_size=3)
    for name in ("ann", "bob", "eve"):
        await bench.chat.ask(name, "tab-1", f"I am {name}")
    await settle()
    assert len(bench.engine.streams) == 1
    change(bench, look_ahead=1)
    await settle()
    assert len(bench.engine.streams) == 2


def test_questions_a_minute():
    limits = RateLimits(1, 0)
    limits.question(caller())
    with pytest.raises(TooFast):
        limits.question(caller())
    limits.use(2, 0)
    limits.question(caller())


def test_who_may_chat_and_how_long_logins_last(tmp_path):
    bench = Bench()
    access = Access.of(bench.settings, Paths(tmp_path), Persons(b"s" * 32), b"s" * 32)
    access.passwords.set("person", "open sesame")
    cookie = {"office_chat_login": access.logins.issue("person")}
    access.use(bench.settings.model_copy(update={"access": "passcode", "allowed_hosts": "chat.example"}))
    assert access.mode == "passcode"
    assert access.hosts.knows(Authority("chat.example"), None)
    assert access.logins.of(cookie) is not None
    access.use(bench.settings.model_copy(update={"login_days": -1.0}))
    assert access.logins.of(cookie) is None
