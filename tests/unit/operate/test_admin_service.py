"""The admin service: what it shows holds no word of anybody, and what it does reaches the running program."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from argon2 import PasswordHasher

from appliance.access.logins import Login
from appliance.access.person import Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.base.errors import SettingsError, TooFast
from appliance.base.paths import Paths
from appliance.operate.admin_service import HERE_S, AdminService, NothingThere, WrongPassword
from appliance.settings.files import Sources
from appliance.settings.store import SettingsStore
from tests.unit.access.test_rate_limits import caller
from tests.unit.chat_bench import ANN, BOB, Bench
from tests.unit.engine_double import settle

SECRET = "my salary is 5000"


class Office(Bench):
    """A chat service with an admin service, in a data folder of its own."""

    def __init__(self, folder: Path, backend: str = "echo") -> None:
        super().__init__(backend=backend)
        paths = Paths(folder)
        paths.prepare()
        access = Access.of(self.settings, paths, Persons(b"s" * 32), b"s" * 32)
        access.passwords._hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        self.door = SimpleNamespace(port=7860)
        store = SettingsStore(self.settings, Sources(folder / "office-chat.toml", folder))
        self.admin_service = AdminService(self.chat, access, RateLimits(0, 0), store, paths, self.door)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def test_conversations_are_listed_without_a_word_of_them(office):
    await office.answered(ANN, SECRET, "I see.")
    await office.chat.ask(*BOB, SECRET)
    await settle()
    office.engine.last.say("Well")
    await settle()
    writing, idle = office.admin_service.sessions()
    assert (writing.state, writing.n_turns, idle.state, idle.n_turns) == ("writing", 1, "idle", 1)
    shown = repr([writing, idle])
    assert not any(word in shown for word in ("salary", "see", "Well", *ANN, *BOB))
    assert writing.visitor != idle.visitor


async def test_looking_does_not_keep_a_conversation_alive(office):
    await office.answered(ANN, "hello", "Good day.")
    office.clock.now += office.settings.session_ttl_s + 1
    office.admin_service.sessions()
    office.admin_service.n_people()
    office.chat.sessions.sweep()
    assert office.admin_service.sessions() == []


async def test_one_conversation_is_ended_and_the_others_stay(office):
    await office.answered(ANN, "hello", "Good day.")
    answer = await office.chat.ask(*BOB, "hello again")
    await settle()
    (running,) = [line for line in office.admin_service.sessions() if line.state != "idle"]
    await office.admin_service.end_session(running.tag)
    assert answer.is_stopped
    assert [line.state for line in office.admin_service.sessions()] == ["idle"]
    with pytest.raises(NothingThere):
        await office.admin_service.end_session(running.tag)


async def test_who_has_not_been_seen_for_long_is_not_here_now(office):
    await office.answered(ANN, "hello", "Good day.")
    await office.answered(("ann", "tab-2"), "hello", "Good day.")
    assert office.admin_service.n_people() == 1
    office.clock.now += HERE_S + 1
    assert office.admin_service.n_people() == 0


async def test_the_admin_password_is_replaced_only_by_who_knows_it(office):
    me = replace(caller(), login=Login("admin", "", "this browser"))
    await office.admin_service.set_password("admin", "correct horse", caller=me)
    with pytest.raises(WrongPassword):
        await office.admin_service.set_password("admin", "battery staple", present="wrong", caller=me)
    await office.admin_service.set_password("admin", "battery staple", present="correct horse", caller=me)
    for _ in range(4):
        with pytest.raises(WrongPassword):
            await office.admin_service.set_password("admin", "x" * 8, present="guess", caller=me)
    with pytest.raises(TooFast):
        await office.admin_service.set_password("admin", "x" * 8, present="battery staple", caller=me)


async def test_what_the_next_start_would_stumble_over_is_not_saved(office):
    with pytest.raises(SettingsError) as caught:
        await office.admin_service.settings.save({"access": "passcode"}, {})
    assert caught.value.rule == "no_passcode"
    await office.admin_service.set_password("person", "open sesame", caller=caller())
    await office.admin_service.settings.save({"access": "passcode"}, {})
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        with pytest.raises(SettingsError) as caught:
            await office.admin_service.settings.save({"port": str(taken.getsockname()[1])}, {})
    assert (caught.value.key, caught.value.rule) == ("port", "address")
    with pytest.raises(SettingsError) as caught:
        await office.admin_service.settings.save({"host": "203.0.113.7", "port": "0"}, {})
    assert caught.value.key == "host"


@pytest.mark.parametrize("content", [b"<!doctype html><title>Not found</title>", b"", None])
async def test_a_model_file_that_is_none_is_named_and_not_saved(tmp_path, content):
    office = Office(tmp_path, backend="llama")
    if content is not None:
        (tmp_path / "models" / "fine.gguf").write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        await office.admin_service.settings.save({"model": "fine.gguf"}, {})
    assert (caught.value.rule, caught.value.values["file"]) == ("model", "fine.gguf")


async def test_our_own_port_can_be_written_down(office):
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        office.door.port = ours.getsockname()[1]
        await office.admin_service.settings.save({"port": str(office.door.port)}, {})


async def test_a_restart_lets_answers_end_and_takes_nothing_new(office):
    again: list[bool] = []
    office.admin_service.restart()
    assert office.chat.not_ready_code == ""
    office.admin_service.start_again = lambda: again.append(True)
    answer = await office.chat.ask(*ANN, "hello")
    await settle()
    office.admin_service.restart()
    office.admin_service.restart()
    await settle()
    assert (office.chat.not_ready_code, again) == ("closing", [])
    office.engine.last.say("Good day.")
    office.engine.last.finish()
    await answer.wait_done()
    await office.admin_service._restarting
    assert (answer.text, again) == ("Good day.", [True])


async def test_the_log_s_last_lines(office, tmp_path):
    assert await office.admin_service.log_lines(5) == []
    lines = [f"2026-01-01 INFO x: line {number}" for number in range(5000)]
    (tmp_path / "logs" / "office-chat.log").write_text("\n".join(lines) + "\n")
    assert await office.admin_service.log_lines(3) == lines[-3:]
    assert len(await office.admin_service.log_lines(10_000)) < 5000
