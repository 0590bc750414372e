"""Changing settings while the program runs: all or nothing, nobody's change lost, the owner's own words kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from appliance.base.errors import ChangedMeanwhile, SettingsError
from appliance.settings.files import find_sources, load_settings, read_settings
from appliance.settings.schema import Settings, expected, kind_of
from appliance.settings.store import SettingsStore, as_text

FILE = """# How we run it
queue_size = 5   # Ann asked for five

# Berlin
office_name = "Haus 3"
"""


class AdminService:
    def __init__(self, folder: Path, text: str | None = FILE, env: dict[str, str] | None = None, **flags: str) -> None:
        self.path = folder / "office-chat.toml"
        if text is not None:
            self.path.write_text(text, encoding="utf-8")
        self.env, self.flags = env or {}, {"data_dir": str(folder), **flags}
        sources = find_sources(self.env, self.flags)
        self.store = SettingsStore(read_settings(sources), sources)
        self.used: list[Settings] = []
        self.store.users.append(self.used.append)

    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def started_again(self) -> Settings:
        return load_settings(self.env, self.flags)


@pytest.fixture
def admin_service(tmp_path: Path) -> AdminService:
    return AdminService(tmp_path)


async def test_a_live_setting_acts_at_once_and_after_the_next_start(admin_service):
    saved = await admin_service.store.save({"disconnect_grace_s": "30"}, {"disconnect_grace_s": "10"})
    assert (saved.now, saved.at_restart) == (("disconnect_grace_s",), ())
    assert [settings.disconnect_grace_s for settings in admin_service.used] == [30]
    assert admin_service.started_again().disconnect_grace_s == 30


async def test_a_setting_for_the_next_start_changes_nothing_now(admin_service):
    saved = await admin_service.store.save({"max_batch_size": "4"}, {})
    assert (saved.now, saved.at_restart, admin_service.used) == ((), ("max_batch_size",), [])
    assert (admin_service.store.in_force.max_batch_size, admin_service.store.n_pending) == (16, 1)
    assert admin_service.started_again().max_batch_size == 4


async def test_comments_order_and_everything_else_in_the_file_stay(admin_service):
    await admin_service.store.save({"queue_size": "7", "language": "zh"}, {})
    assert admin_service.text() == FILE.replace("= 5 ", "= 7 ") + 'language = "zh"\n'


async def test_without_a_file_one_is_made_that_says_what_it_is(tmp_path):
    admin_service = AdminService(tmp_path, text=None)
    await admin_service.store.save({"system_prompt": '引号 " 和\n第二行 \\'}, {})
    assert admin_service.text().startswith("# Settings of Office Chat")
    assert admin_service.started_again().system_prompt == '引号 " 和\n第二行 \\'
    assert admin_service.path.stat().st_mode & 0o077 == 0


async def test_one_bad_value_and_none_of_them_is_saved(admin_service):
    with pytest.raises(SettingsError) as caught:
        await admin_service.store.save({"queue_size": "7", "max_batch_size": "lots"}, {})
    assert (caught.value.key, caught.value.rule) == ("max_batch_size", "expected")
    assert admin_service.text() == FILE
    assert admin_service.store.saved.queue_size == 5
    assert admin_service.used == []


@pytest.mark.parametrize("typed", ["", "-1", "1001", "2.5", "ten", "1e2", "NaN", "0x10", " ", "5\n6"])
async def test_what_is_no_number_of_that_range_is_refused(admin_service, typed):
    with pytest.raises(SettingsError, match="expected a whole number"):
        await admin_service.store.check({"queue_size": typed})


@pytest.mark.parametrize("typed", ["-1", "999", "two"])
async def test_a_number_of_threads_that_makes_no_sense_is_refused(admin_service, typed):
    with pytest.raises(SettingsError, match="from 0 to 256"):
        await admin_service.store.save({"n_threads": typed}, {})
    await admin_service.store.save({"n_threads": "0"}, {})


async def test_full_width_digits_and_blanks_around_are_what_they_look_like(admin_service):
    await admin_service.store.save({"queue_size": " １２ "}, {})
    assert admin_service.started_again().queue_size == 12


async def test_two_values_that_do_not_go_together_are_refused_and_named(admin_service):
    with pytest.raises(SettingsError) as caught:
        await admin_service.store.save({"disconnect_grace_s": "1"}, {})
    assert (caught.value.key, caught.value.rule) == ("disconnect_grace_busy_s", "grace")
    await admin_service.store.save({"disconnect_grace_s": "1", "disconnect_grace_busy_s": "1"}, {})
    assert admin_service.started_again().disconnect_grace_s == 1


async def test_a_value_that_is_not_set_any_more_leaves_the_file(admin_service):
    await admin_service.store.save({"temperature": "0.5"}, {"temperature": ""})
    assert "temperature = 0.5" in admin_service.text()
    await admin_service.store.save({"temperature": ""}, {"temperature": "0.5"})
    assert admin_service.text() == FILE
    assert admin_service.started_again().temperature is None


async def test_the_second_of_two_who_change_the_same_is_told_and_nothing_is_lost(admin_service):
    seen = {"queue_size": "5", "office_name": "Haus 3"}
    await admin_service.store.save({"queue_size": "6"}, seen)
    with pytest.raises(ChangedMeanwhile) as caught:
        await admin_service.store.save({"queue_size": "9", "office_name": "Haus 4"}, seen)
    assert caught.value.names == ("queue_size",)
    assert (admin_service.started_again().queue_size, admin_service.started_again().office_name) == (6, "Haus 3")


async def test_two_who_change_different_things_at_once_lose_nothing(admin_service):
    seen = {key: shown.saved for key, shown in admin_service.store.shown().items()}
    changes = [{"queue_size": "6"}, {"office_name": "Haus 4"}, {"disconnect_grace_s": "20"}, {"language": "en"}]
    await asyncio.gather(*(admin_service.store.save(change, seen) for change in changes))
    after = admin_service.started_again()
    assert (after.queue_size, after.office_name, after.disconnect_grace_s, after.language) == (6, "Haus 4", 20, "en")


async def test_a_hand_that_edits_the_file_meanwhile_counts_as_somebody_else(admin_service):
    admin_service.path.write_text(FILE.replace("5 ", "8 "), encoding="utf-8")
    with pytest.raises(ChangedMeanwhile):
        await admin_service.store.save({"queue_size": "9"}, {"queue_size": "5"})
    assert admin_service.store.shown()["queue_size"].saved == "8"


async def test_a_file_that_was_broken_by_hand_is_left_alone(admin_service):
    admin_service.path.write_text("queue_size = \n", encoding="utf-8")
    with pytest.raises(SettingsError, match="not valid TOML"):
        await admin_service.store.save({"language": "zh"}, {})
    assert admin_service.text() == "queue_size = \n"


async def test_what_flag_or_environment_decide_is_locked(tmp_path):
    admin_service = AdminService(tmp_path, FILE, {"OFFICE_CHAT_QUEUE_SIZE": "3"}, port="8123")
    shown = admin_service.store.shown()
    assert (shown["queue_size"].locked_by, shown["queue_size"].saved) == ("the environment", "3")
    assert (shown["port"].locked_by, shown["data_dir"].locked_by) == ("the command line", "the command line")
    assert shown["office_name"].locked_by == ""
    with pytest.raises(SettingsError) as caught:
        await admin_service.store.save({"queue_size": "9"}, {})
    assert caught.value.rule == "locked"
    await admin_service.store.save({"office_name": "Haus 4"}, {})
    assert "queue_size = 5 " in admin_service.text()


async def test_an_objection_stops_the_save(admin_service):
    def no_port_below_1024(_before: Settings, new: Settings) -> None:
        if new.port < 1024:
            raise SettingsError("no", "port", "taken")

    admin_service.store.objections.append(no_port_below_1024)
    with pytest.raises(SettingsError):
        await admin_service.store.save({"port": "80", "queue_size": "9"}, {})
    assert admin_service.text() == FILE


async def test_a_disk_that_refuses_leaves_everything_as_it_was(admin_service, monkeypatch):
    def full(_path: Path, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("appliance.settings.store.write_sound", full)
    with pytest.raises(OSError, match="space"):
        await admin_service.store.save({"disconnect_grace_s": "30"}, {})
    assert (admin_service.text(), admin_service.used, admin_service.store.saved.disconnect_grace_s) == (FILE, [], 10)


async def test_every_setting_can_be_typed_as_it_is_shown(admin_service):
    typed = {key: shown.saved for key, shown in admin_service.store.shown().items() if not shown.locked_by}
    assert (await admin_service.store.save(typed, typed)).now == ()
    assert admin_service.text() == FILE


async def test_no_such_setting(admin_service):
    with pytest.raises(SettingsError, match="no such setting"):
        await admin_service.store.check({"__class__": "x"})


def test_every_setting_has_a_kind_that_fits_its_default():
    for key, row in Settings.model_fields.items():
        kind = kind_of(key)
        assert expected(key)
        if kind.sort == "choice":
            assert as_text(row.default) in kind.choices
        elif kind.sort in ("whole", "number") and row.default is not None:
            assert kind.low <= row.default <= kind.high


CHOSEN = {
    "engine_cores": "0",
    "allowed_hosts": "chat.example",
    "lan_name": "chat",
    "presets": "sql | Our tone: Rewrite this:",
    "download_endpoint": "https://mirror.example",
    "download_proxy": "http://proxy.example:3128",
    "engine_priority": "high",
    "host": "127.0.0.1",
    "top_p": "0.5",
    "disconnect_grace_busy_s": "1",
    "max_context_tokens": "2048",
    "max_answer_tokens": "100",
}


def another(key: str) -> str:
    """A value that is not the default."""
    row, kind = Settings.model_fields[key], kind_of(key)
    if key in CHOSEN:
        return CHOSEN[key]
    if kind.sort == "choice":
        return next(choice for choice in kind.choices if choice != row.default)
    if kind.sort == "switch":
        return as_text(not row.default)
    if kind.sort == "text":
        return "something else"
    return as_text((row.default or kind.low) + 1)


@pytest.mark.parametrize("key", sorted(set(Settings.model_fields) - {"data_dir"}))
async def test_every_setting_acts_at_once_or_is_announced_for_the_restart_and_is_there_after_it(tmp_path, key):
    admin_service = AdminService(tmp_path, text=None)
    saved = await admin_service.store.save({key: another(key)}, {key: admin_service.store.shown()[key].saved})
    assert saved.now + saved.at_restart == (key,)
    shown = admin_service.store.shown()[key]
    assert as_text(getattr(admin_service.started_again(), key)) == another(key) == shown.saved != shown.default
    if saved.now:
        assert getattr(admin_service.used[-1], key) == getattr(admin_service.started_again(), key)
        assert admin_service.store.n_pending == 0
    else:
        assert admin_service.used == []
        assert admin_service.store.n_pending == 1
